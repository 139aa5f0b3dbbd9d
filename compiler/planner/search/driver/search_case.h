// The case of one search, and the time it has: choosing, pricing alternatives, and saying what would fit share it.
#pragma once
#include "compiler/planner/problem/constraints.h"
#include "compiler/planner/search/driver/outer_search.h"
#include "compiler/planner/search/space/search_options.h"
#include "compiler/planner/search_clock.h"
#include "compiler/planner/split/split_model.h"

namespace cleave::planner {

// The time that is left, where there is a limit, and what is done with it.
class SearchTime {
public:
  explicit SearchTime(const SearchOptions &options) : options(options), clock(options.seconds) {}
  double elapsed() const { return clock.elapsed(); }
  bool isOver() const { return clock.isOver(); }
  // The search that was asked for, where others come after it.
  SearchOptions first() const {
    constexpr double part = 0.6;
    SearchOptions one = options;
    one.top = std::max(options.top, options.refine - 1);
    one.seconds = left(options.alternatives ? part : 1);
    one.progress = tell("");
    return one;
  }
  // One of `parts` searches beside it, which do `what`; of those only the plans are of interest.
  SearchOptions beside(size_t parts, const std::string &what) const {
    SearchOptions one = options;
    one.top = 0;
    one.certifies = false;
    one.onlyBest = true;
    one.progress = tell(what);
    one.seconds = left(1 / double(parts));
    return one;
  }

private:
  double left(double part) const {
    constexpr double least = 1e-6; // 0 would be no limit
    return options.seconds > 0 ? std::max(least, part * (options.seconds - elapsed())) : 0;
  }

  // Tells the progress of a search after what was said before it; a search beside it tells only that it goes on.
  std::function<void(const SearchProgress &)> tell(const std::string &what) const {
    if (!options.progress) return {};
    return [this, what](SearchProgress progress) {
      progress.seconds = elapsed();
      if (what.empty()) {
        main = progress;
      } else {
        main.seconds = progress.seconds;
        main.doing = what;
      }
      if (main.seconds < told + tellInterval) return; // each of many short searches begins with telling
      told = main.seconds;
      options.progress(main);
    };
  }

  const SearchOptions &options;
  SearchClock clock;
  mutable SearchProgress main;         // of the search that was asked for, as far as it has told
  mutable double told = -tellInterval; // when
};

struct SearchCase {
  const Problem &problem;
  const ProblemFacts &facts;
  const Cluster &cluster;
  const Constraints &constraints; // that were asked for
  const SearchTime &time;

  // The same search with other constraints, perhaps on another cluster.
  Outcome search(const Constraints &with, const SearchOptions &how) const {
    return searchSettings(problem, facts, cluster, with, how);
  }
  Outcome search(const Cluster &on, const Constraints &with, const SearchOptions &how) const {
    return searchSettings(problem, facts, on, with, how);
  }
};

} // namespace cleave::planner
