// The factor graph as a mixed integer program: a binary for every value of a variable, a continuous variable in [0, 1]
// for every allowed entry of a table over several variables, tied to the binaries by marginals (local polytope).
#include "compiler/planner/factor_graph.h"
#include <Highs.h>
#include <cmath>

namespace cleave::planner {

std::optional<Minimum> minimizeAsMilp(const FactorGraph &graph, double seconds) {
  Highs highs;
  highs.setOptionValue("output_flag", false);
  highs.setOptionValue("time_limit", seconds);
  highs.setOptionValue("threads", 1);
  highs.setOptionValue("mip_rel_gap", 1e-9);
  HighsModel model;
  HighsLp &lp = model.lp_;
  double constant = 0, scale = 0; // HiGHS works to absolute tolerances: bring the costs to about 1
  for (const Table &table : graph.tables)
    for (double value : table.values)
      if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  if (scale == 0) scale = 1;
  scale /= 1000;
  auto addColumn = [&](double cost, bool isBinary) {
    lp.col_cost_.push_back(cost / scale);
    lp.col_lower_.push_back(0);
    lp.col_upper_.push_back(1);
    lp.integrality_.push_back(isBinary ? HighsVarType::kInteger : HighsVarType::kContinuous);
    return int(lp.num_col_++);
  };
  std::vector<std::vector<std::pair<int, double>>> rows;
  std::vector<double> sides;
  std::vector<int> first(graph.domains.size());
  for (size_t v = 0; v < graph.domains.size(); ++v) {
    std::vector<std::pair<int, double>> row;
    for (int d = 0; d < graph.domains[v]; ++d) {
      int column = addColumn(0, true);
      if (d == 0) first[v] = column;
      row.emplace_back(column, 1.0);
    }
    rows.push_back(std::move(row));
    sides.push_back(1);
  }
  for (const Table &table : graph.tables) {
    if (table.scope.empty()) {
      constant += table.values[0];
      continue;
    }
    if (table.scope.size() == 1) {
      for (size_t d = 0; d < table.values.size(); ++d) {
        size_t column = size_t(first[size_t(table.scope[0])]) + d;
        if (std::isfinite(table.values[d]))
          lp.col_cost_[column] += table.values[d] / scale;
        else
          lp.col_upper_[column] = 0;
      }
      continue;
    }
    std::vector<std::vector<std::vector<std::pair<int, double>>>> marginals; // scope position, value -> row
    for (int variable : table.scope) {
      auto &rowsOf = marginals.emplace_back(size_t(graph.domains[size_t(variable)]));
      for (size_t d = 0; d < rowsOf.size(); ++d) rowsOf[d].emplace_back(first[size_t(variable)] + int(d), -1.0);
    }
    for (size_t entry = 0; entry < table.values.size(); ++entry) {
      if (!std::isfinite(table.values[entry])) continue;
      int column = addColumn(table.values[entry], false);
      size_t rest = entry;
      for (size_t i = table.scope.size(); i-- > 0;) {
        size_t domain = size_t(graph.domains[size_t(table.scope[i])]);
        marginals[i][rest % domain].emplace_back(column, 1.0);
        rest /= domain;
      }
    }
    for (auto &rowsOf : marginals)
      for (auto &row : rowsOf) {
        rows.push_back(std::move(row));
        sides.push_back(0);
      }
  }
  lp.num_row_ = HighsInt(rows.size());
  lp.row_lower_ = lp.row_upper_ = sides;
  lp.a_matrix_.format_ = MatrixFormat::kRowwise;
  lp.a_matrix_.start_ = {0};
  for (const auto &row : rows) {
    for (auto [column, value] : row) {
      lp.a_matrix_.index_.push_back(column);
      lp.a_matrix_.value_.push_back(value);
    }
    lp.a_matrix_.start_.push_back(HighsInt(lp.a_matrix_.index_.size()));
  }
  if (highs.passModel(std::move(model)) == HighsStatus::kError || highs.run() == HighsStatus::kError)
    return std::nullopt;
  const std::vector<double> &solution = highs.getSolution().col_value;
  if (solution.empty() || highs.getInfo().primal_solution_status != kSolutionStatusFeasible) return std::nullopt;
  Minimum minimum;
  for (size_t v = 0; v < graph.domains.size(); ++v) {
    int best = 0;
    for (int d = 1; d < graph.domains[v]; ++d)
      if (solution[size_t(first[v] + d)] > solution[size_t(first[v] + best)]) best = d;
    minimum.assignment.push_back(best);
  }
  minimum.value = valueOf(graph, minimum.assignment);
  minimum.bound = std::min(minimum.value, highs.getInfo().mip_dual_bound * scale + constant);
  return minimum;
}

} // namespace cleave::planner
