#include "test/unit/schedule/brute_force.h"
#include <algorithm>
#include <limits>

namespace cleave::planner {
namespace {

class Search {
public:
  Search(int ranks, int64_t microbatches, const StageTimes &times, bool split)
      : ranks(ranks), microbatches(microbatches), split(split),
        duration{times.forward, times.backwardInput + (split ? 0 : times.backwardWeight), times.backwardWeight},
        rows(ranks), best(std::numeric_limits<double>::infinity()) {}

  double run() {
    branch();
    return best;
  }

private:
  enum Pass { F, B, W };
  struct Row {
    std::vector<double> ends[3];
    double clock = 0;
  };
  struct Choice {
    int rank;
    Pass pass;
    double start, end;
  };

  std::vector<Choice> possible() const {
    std::vector<Choice> choices;
    for (int r = 0; r < ranks; ++r) {
      const Row &row = rows[r];
      auto offer = [&](Pass pass, const std::vector<double> *before) {
        const size_t m = row.ends[pass].size();
        if (m == size_t(microbatches) || (before != nullptr && before->size() <= m)) return;
        const double start = std::max(row.clock, before != nullptr ? (*before)[m] : 0.0);
        choices.push_back({r, pass, start, start + duration[pass]});
      };
      offer(F, r > 0 ? &rows[r - 1].ends[F] : nullptr);
      offer(B, r + 1 < ranks ? &rows[r + 1].ends[B] : &row.ends[F]);
      if (split) offer(W, &row.ends[B]);
    }
    return choices;
  }

  double leastEnd() const { // no rank can end before it has done what it has left
    double least = 0;
    for (const Row &row : rows) {
      double end = row.clock;
      for (Pass pass : {F, B, W})
        if (pass != W || split) end += duration[pass] * double(microbatches - int64_t(row.ends[pass].size()));
      least = std::max(least, end);
    }
    return least;
  }

  void branch() {
    if (leastEnd() >= best - 1e-9) return;
    const std::vector<Choice> choices = possible();
    if (choices.empty()) {
      best = leastEnd();
      return;
    }
    const Choice first = *std::ranges::min_element(choices, {}, &Choice::end);
    for (const Choice &choice : choices) {
      if (choice.rank != first.rank || choice.start >= first.end) continue;
      Row &row = rows[choice.rank];
      const double clock = row.clock;
      row.clock = choice.end;
      row.ends[choice.pass].push_back(choice.end);
      branch();
      row.ends[choice.pass].pop_back();
      row.clock = clock;
    }
  }

  int ranks;
  int64_t microbatches;
  bool split;
  double duration[3];
  std::vector<Row> rows;
  double best;
};

} // namespace

double shortestMakespan(int ranks, int64_t microbatches, const StageTimes &times, bool split) {
  return Search(ranks, microbatches, times, split).run();
}

} // namespace cleave::planner
