// Every way to begin `stages` stages among `units` units, for tests that enumerate.
//
//   eachCut(4, 2, visit)     visits {0,1}, {0,2}, {0,3}
#pragma once
#include <functional>
#include <vector>

namespace cleave::planner::testing {

inline void eachCut(int units, int stages, const std::function<void(const std::vector<int> &)> &visit) {
  std::vector<int> starts(size_t(stages), 0);
  std::function<void(int)> place = [&](int stage) {
    if (stage == stages) return visit(starts);
    for (int unit = starts[size_t(stage) - 1] + 1; unit <= units - (stages - stage); ++unit) {
      starts[size_t(stage)] = unit;
      place(stage + 1);
    }
  };
  if (units >= stages) place(1);
}

} // namespace cleave::planner::testing
