#include "compiler/planner/search/space/factor_graph.h"
#include "compiler/planner/infinity.h"
#include <algorithm>
#include <set>

namespace cleave::planner {
namespace {

// Strides of `scope`'s variables in a table over `inner`; 0 for those it does not have.
std::vector<size_t> stridesIn(const Table &inner, const std::vector<int> &scope, const std::vector<int> &domains) {
  std::vector<size_t> strides(scope.size(), 0);
  size_t stride = 1;
  for (size_t i = inner.scope.size(); i-- > 0;) {
    auto at = std::lower_bound(scope.begin(), scope.end(), inner.scope[i]) - scope.begin();
    strides[size_t(at)] = stride;
    stride *= size_t(domains[size_t(inner.scope[i])]);
  }
  return strides;
}

// Adds `inner`, broadcast, to the values of a table over `scope`, which is not empty: a run of the last variable's
// values at a time.
void accumulate(std::vector<double> &values, const std::vector<int> &scope, const Table &inner,
                const std::vector<int> &domains) {
  const std::vector<size_t> strides = stridesIn(inner, scope, domains);
  const size_t run = size_t(domains[size_t(scope.back())]), step = strides.back();
  std::vector<int> at(scope.size(), 0);
  size_t offset = 0;
  for (size_t begin = 0; begin < values.size(); begin += run) {
    double *value = values.data() + begin;
    const double *from = inner.values.data() + offset;
    if (step == 0)
      for (size_t d = 0; d < run; ++d) value[d] += *from;
    else // it is the last of both
      for (size_t d = 0; d < run; ++d) value[d] += from[d];
    for (size_t i = scope.size() - 1; i-- > 0;) {
      offset += strides[i];
      if (++at[i] < domains[size_t(scope[i])]) break;
      offset -= strides[i] * size_t(domains[size_t(scope[i])]);
      at[i] = 0;
    }
  }
}

size_t entries(const std::vector<int> &scope, const std::vector<int> &domains) {
  size_t product = 1;
  for (int variable : scope) product *= size_t(domains[size_t(variable)]);
  return product;
}

} // namespace

std::optional<std::vector<Elimination>> eliminationOrder(const FactorGraph &graph, size_t widest) {
  const size_t count = graph.domains.size();
  std::vector<std::set<int>> tablesOf(count), neighbours(count);
  std::vector<Elimination> order;
  order.reserve(count);
  for (size_t t = 0; t < graph.tables.size(); ++t)
    for (int a : graph.tables[t].scope) {
      tablesOf[size_t(a)].insert(int(t));
      for (int b : graph.tables[t].scope)
        if (a != b) neighbours[size_t(a)].insert(b);
    }
  auto widthOf = [&](int variable) {
    size_t product = size_t(graph.domains[size_t(variable)]);
    for (int other : neighbours[size_t(variable)]) {
      product *= size_t(graph.domains[size_t(other)]);
      if (product > widest) return widest + 1;
    }
    return product;
  };
  std::set<std::pair<size_t, int>> queue;
  std::vector<size_t> width(count);
  for (size_t v = 0; v < count; ++v) queue.emplace(width[v] = widthOf(int(v)), int(v));
  while (!queue.empty()) {
    auto [size, variable] = *queue.begin();
    queue.erase(queue.begin());
    if (size > widest) return std::nullopt;
    std::set<int> &joined = tablesOf[size_t(variable)], &around = neighbours[size_t(variable)];
    Elimination step{variable, {around.begin(), around.end()}, {joined.begin(), joined.end()}};
    for (int t : step.tables)
      for (int other : size_t(t) < graph.tables.size() ? graph.tables[size_t(t)].scope
                                                       : order[size_t(t) - graph.tables.size()].scope)
        if (other != variable) tablesOf[size_t(other)].erase(t);
    for (int other : step.scope) {
      tablesOf[size_t(other)].insert(int(graph.tables.size() + order.size()));
      neighbours[size_t(other)].erase(variable);
      for (int third : step.scope)
        if (third != other) neighbours[size_t(other)].insert(third);
    }
    for (int other : step.scope) {
      queue.erase({width[size_t(other)], other});
      queue.emplace(width[size_t(other)] = widthOf(other), other);
    }
    order.push_back(std::move(step));
  }
  return order;
}

Minimum eliminate(const FactorGraph &graph, const std::vector<Elimination> &order) {
  const size_t count = graph.domains.size();
  std::vector<Table> made;               // by eliminating
  std::vector<std::vector<int>> choices; // a step: the variable's best value for every assignment of scope
  made.reserve(count);
  auto table = [&](size_t t) -> const Table & {
    return t < graph.tables.size() ? graph.tables[t] : made[t - graph.tables.size()];
  };
  double constant = 0;
  for (const Table &one : graph.tables)
    if (one.scope.empty()) constant += one.values[0];
  for (const Elimination &step : order) {
    std::vector<int> scope = step.scope;
    scope.insert(std::upper_bound(scope.begin(), scope.end(), step.variable), step.variable);
    std::vector<double> values(entries(scope, graph.domains), 0.0);
    for (int t : step.tables) {
      accumulate(values, scope, table(size_t(t)), graph.domains);
      if (size_t(t) >= graph.tables.size()) made[size_t(t) - graph.tables.size()].values = {}; // nobody else reads it
    }
    // Minimum over the variable: its stride inside the joined table.
    size_t position = size_t(std::lower_bound(scope.begin(), scope.end(), step.variable) - scope.begin()), inner = 1;
    for (size_t i = position + 1; i < scope.size(); ++i) inner *= size_t(graph.domains[size_t(scope[i])]);
    size_t domain = size_t(graph.domains[size_t(step.variable)]);
    Table reduced{step.scope, std::vector<double>(values.size() / domain, infinity)};
    std::vector<int> &choice = choices.emplace_back(reduced.values.size());
    for (size_t begin = 0; begin < reduced.values.size(); begin += inner)
      for (size_t d = 0; d < domain; ++d) {
        const double *value = values.data() + begin * domain + d * inner;
        for (size_t i = 0; i < inner; ++i)
          if (value[i] < reduced.values[begin + i]) {
            reduced.values[begin + i] = value[i];
            choice[begin + i] = int(d);
          }
      }
    if (step.scope.empty()) constant += reduced.values[0];
    made.push_back(std::move(reduced));
  }
  Minimum minimum{constant, constant, std::vector<int>(count, 0)};
  for (size_t i = order.size(); i-- > 0;) {
    size_t offset = 0;
    for (int other : order[i].scope)
      offset = offset * size_t(graph.domains[size_t(other)]) + size_t(minimum.assignment[size_t(other)]);
    minimum.assignment[size_t(order[i].variable)] = choices[i][offset];
  }
  return minimum;
}

double valueOf(const FactorGraph &graph, const std::vector<int> &assignment) {
  double sum = 0;
  for (const Table &table : graph.tables) {
    size_t offset = 0;
    for (int variable : table.scope)
      offset = offset * size_t(graph.domains[size_t(variable)]) + size_t(assignment[size_t(variable)]);
    sum += table.values[offset];
  }
  return sum;
}

} // namespace cleave::planner
