// Ranks that are slower than those that do the same: told from the seconds a step that each spends on its own, not
// waiting for others, over a window of steps.
//
//   Stragglers stragglers(groups);                        // ranks of one group run the same program
//   stragglers.heard(3, /*window=*/7, /*ownSeconds=*/0.018);
//   for (const Straggler &slow : stragglers.found()) ...  // {3, 1.8, 0.018, 0.010}
#pragma once
#include <cstdint>
#include <vector>

namespace cleave::runtime {

constexpr int64_t stepsOfWindow = 20;

struct Straggler {
  int rank;
  double ratio, seconds, median; // over the median of its group, seconds a step
};

class Stragglers {
public:
  explicit Stragglers(std::vector<int> groups) : groups(std::move(groups)), own(this->groups.size()) {}
  void heard(int rank, int64_t window, double ownSeconds);
  // Looks at the newest windows, when all ranks have ended one since the last time; else gives none.
  std::vector<Straggler> found();

private:
  struct Own {
    int64_t window = 0;
    double seconds = 0;
  };
  std::vector<int> groups;
  std::vector<Own> own;
  int64_t judged = 0; // windows up to here
};

} // namespace cleave::runtime
