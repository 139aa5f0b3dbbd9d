// A linear program that grows by rows: the least cost * x with 0 <= x <= upper, and lower <= row * x <= upper of each
// row. HiGHS solves it; no other file knows HiGHS. A program that got more rows is solved from its last solution on.
//
//   LinearProgram program;              // the least x with x >= 2
//   program.addColumn(1, infinity);
//   LinearProgram::Rows rows;
//   rows.begin(2, infinity);
//   rows.add(0, 1);
//   program.addRows(rows);
//   program.solve();                    // Outcome::Optimal: objective() is 2, columnValues() are {2}
#pragma once
#include "compiler/planner/infinity.h"
#include <cstddef>
#include <vector>

namespace cleave::planner {

class LinearProgram {
public:
  enum class Outcome { Optimal, Infeasible, Unknown };

  struct Rows {
    std::vector<double> lower, upper, values;
    std::vector<int> starts, columns; // of each row where its entries begin; of each entry its column
    void begin(double least, double most);
    void add(int column, double value); // to the last row that was begun
  };

  LinearProgram();
  ~LinearProgram();
  LinearProgram(const LinearProgram &) = delete;
  LinearProgram &operator=(const LinearProgram &) = delete;

  void addColumn(double cost, double upper);
  void addRows(const Rows &rows);
  size_t rowCount() const;
  [[nodiscard]] Outcome solve();
  // Results of the last solve(), where it was optimal; rows that it did not have are worth 0.
  double objective() const;
  std::vector<double> columnValues() const;
  std::vector<double> rowDuals() const;

private:
  void *highs;
};

} // namespace cleave::planner
