#include "compiler/planner/certify/linear_program.h"

// The functions called of HiGHS's C interface (its interfaces/highs_c_api.h); the library comes without headers.
extern "C" {
void *Highs_create();
void Highs_destroy(void *highs);
int Highs_setBoolOptionValue(void *highs, const char *option, int value);
int Highs_setIntOptionValue(void *highs, const char *option, int value);
int Highs_setStringOptionValue(void *highs, const char *option, const char *value);
int Highs_addCol(void *highs, double cost, double lower, double upper, int entries, const int *index,
                 const double *value);
int Highs_addRows(void *highs, int rows, const double *lower, const double *upper, int entries, const int *starts,
                  const int *index, const double *value);
int Highs_run(void *highs);
int Highs_getModelStatus(const void *highs);
double Highs_getObjectiveValue(const void *highs);
int Highs_getSolution(const void *highs, double *columnValue, double *columnDual, double *rowValue, double *rowDual);
int Highs_getNumCol(const void *highs);
int Highs_getNumRow(const void *highs);
}

namespace cleave::planner {
namespace {

// kHighsStatusError, kHighsModelStatusOptimal and kHighsModelStatusInfeasible.
constexpr int statusError = -1, modelOptimal = 7, modelInfeasible = 8;

} // namespace

void LinearProgram::Rows::begin(double least, double most) {
  lower.push_back(least);
  upper.push_back(most);
  starts.push_back(int(columns.size()));
}

void LinearProgram::Rows::add(int column, double value) {
  columns.push_back(column);
  values.push_back(value);
}

LinearProgram::LinearProgram() : highs(Highs_create()) {
  Highs_setBoolOptionValue(highs, "output_flag", false);
  Highs_setIntOptionValue(highs, "threads", 1);
  Highs_setStringOptionValue(highs, "presolve", "off");
  // Weights of exact steepest edges are computed anew for every program, and cost more than they save.
  Highs_setIntOptionValue(highs, "simplex_dual_edge_weight_strategy", 1);
}

LinearProgram::~LinearProgram() { Highs_destroy(highs); }

void LinearProgram::addColumn(double cost, double upper) { Highs_addCol(highs, cost, 0, upper, 0, nullptr, nullptr); }

void LinearProgram::addRows(const Rows &rows) {
  Highs_addRows(highs, int(rows.starts.size()), rows.lower.data(), rows.upper.data(), int(rows.columns.size()),
                rows.starts.data(), rows.columns.data(), rows.values.data());
}

size_t LinearProgram::rowCount() const { return size_t(Highs_getNumRow(highs)); }

LinearProgram::Outcome LinearProgram::solve() {
  if (Highs_run(highs) == statusError) return Outcome::Unknown;
  switch (Highs_getModelStatus(highs)) {
  case modelOptimal:
    return Outcome::Optimal;
  case modelInfeasible:
    return Outcome::Infeasible;
  default:
    return Outcome::Unknown;
  }
}

double LinearProgram::objective() const { return Highs_getObjectiveValue(highs); }

std::vector<double> LinearProgram::columnValues() const {
  std::vector<double> values(size_t(Highs_getNumCol(highs)), 0.0);
  Highs_getSolution(highs, values.data(), nullptr, nullptr, nullptr);
  return values;
}

std::vector<double> LinearProgram::rowDuals() const {
  std::vector<double> duals(rowCount(), 0.0);
  Highs_getSolution(highs, nullptr, nullptr, nullptr, duals.data());
  return duals;
}

} // namespace cleave::planner
