// The plans that a search has met, and from them how fast another must be to be worth a look.
//
//   found.record(solution);      // kept if it is the fastest of its mesh that fits
//   if (bound >= found.worthTrying()) ...   // no plan of that setting is wanted
#pragma once
#include "compiler/planner/search/space/search_options.h"
#include "compiler/planner/search/space/solution.h"

namespace cleave::planner {

bool sameMesh(const Setting &a, const Setting &b);

struct FoundPlans {
  explicit FoundPlans(const SearchOptions &options) : options(options) {}

  void record(Solution solution);
  // Is anything known that a search may end with?
  bool hasAny() const;
  // Seconds of the best plan, or of what it has to beat.
  double incumbent() const;
  // A setting that cannot be faster than this is of no use: the best plan so far, or the last runner-up asked for.
  double worthTrying() const;
  // The best plan's seconds, or the last runner-up's that is wanted and known.
  double slowestAsked() const;
  // The best of the setting's mesh; null: none fits so far.
  const Solution *bestOf(const Setting &setting) const;
  double secondsOf(const Setting &setting) const; // of that; infinite: none
  std::vector<Solution> fastestFirst() const;

  const SearchOptions &options;
  std::optional<Solution> best;        // the fastest that fits
  std::optional<Solution> leastMemory; // while nothing fits: what comes closest
  std::vector<Solution> byMesh;        // the best of every mesh that fits
};

} // namespace cleave::planner
