#include "compiler/planner/bound_mixture.h"
#include <Highs.h>
#include <algorithm>
#include <cmath>

namespace cleave::planner {

std::optional<BoundMixture> bestMixture(const std::vector<std::vector<double>> &values,
                                        const std::vector<std::vector<double>> &excesses, double mostPrice) {
  if (values.empty() || values[0].empty()) return std::nullopt;
  const size_t bounds = values[0].size(), resources = excesses[0].size();
  Highs highs;
  highs.setOptionValue("output_flag", false);
  highs.setOptionValue("threads", 1);
  HighsModel model;
  HighsLp &lp = model.lp_;
  // Columns: weights, prices, the value; rows: one a point (mixed value >= value), the sum of weights.
  lp.num_col_ = HighsInt(bounds + resources + 1);
  lp.num_row_ = HighsInt(values.size() + 1);
  lp.col_cost_.assign(bounds + resources, 0);
  lp.col_cost_.push_back(-1);
  lp.col_lower_.assign(bounds + resources, 0);
  lp.col_lower_.push_back(-kHighsInf);
  lp.col_upper_.assign(bounds, 1);
  lp.col_upper_.insert(lp.col_upper_.end(), resources, mostPrice);
  lp.col_upper_.push_back(kHighsInf);
  lp.a_matrix_.format_ = MatrixFormat::kRowwise;
  lp.a_matrix_.start_ = {0};
  auto add = [&](size_t column, double value) {
    if (value == 0) return;
    lp.a_matrix_.index_.push_back(HighsInt(column));
    lp.a_matrix_.value_.push_back(value);
  };
  auto endRow = [&](double lower, double upper) {
    lp.row_lower_.push_back(lower);
    lp.row_upper_.push_back(upper);
    lp.a_matrix_.start_.push_back(HighsInt(lp.a_matrix_.index_.size()));
  };
  for (size_t point = 0; point < values.size(); ++point) {
    for (size_t b = 0; b < bounds; ++b) add(b, values[point][b]);
    for (size_t r = 0; r < resources; ++r) add(bounds + r, excesses[point][r]);
    add(bounds + resources, -1);
    endRow(0, kHighsInf);
  }
  for (size_t b = 0; b < bounds; ++b) add(b, 1);
  endRow(1, 1);
  if (highs.passModel(std::move(model)) == HighsStatus::kError || highs.run() == HighsStatus::kError ||
      highs.getModelStatus() != HighsModelStatus::kOptimal)
    return std::nullopt;
  const std::vector<double> &solution = highs.getSolution().col_value;
  BoundMixture mixture;
  double sum = 0;
  for (size_t b = 0; b < bounds; ++b) sum += mixture.weights.emplace_back(std::max(0.0, solution[b]));
  for (double &weight : mixture.weights) weight /= sum; // exactly a mixture, whatever the solver's tolerance
  for (size_t r = 0; r < resources; ++r) mixture.prices.push_back(std::max(0.0, solution[bounds + r]));
  const std::vector<double> &duals = highs.getSolution().row_dual;
  for (size_t point = 0; point < values.size(); ++point)
    mixture.points.push_back(point < duals.size() ? std::abs(duals[point]) : 0);
  mixture.value = solution[bounds + resources];
  return mixture;
}

} // namespace cleave::planner
