// The best mixture of lower bounds for a number of points: weights of the bounds, and prices for what each point has
// too much of, so that the least mixed value over the points is as large as can be. A linear program, by HiGHS.
//
//   bestMixture({{4, 1}, {2, 3}}, {{}, {}}, 0)    two points, two bounds: weights {1/2, 1/2}, 2.5 at both
#pragma once
#include <optional>
#include <vector>

namespace cleave::planner {

struct BoundMixture {
  std::vector<double> weights, prices; // of the bounds, with sum 1; of the excesses, not negative
  std::vector<double> points;          // how much each point counts for the value, with sum 1
  double value = 0;
};

// values[point][bound], excesses[point][resource]; a price is at most `mostPrice`. Nothing when the solver gives up.
std::optional<BoundMixture> bestMixture(const std::vector<std::vector<double>> &values,
                                        const std::vector<std::vector<double>> &excesses, double mostPrice);

} // namespace cleave::planner
