// Block coordinate descent for graphs too wide to eliminate (a network whose layers read all layers before them), and
// the choice between the two for a graph.
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/space/factor_graph.h"
#include <algorithm>
#include <set>

namespace cleave::planner {
namespace {

// The graph's domains and scopes, without values, after some variables are fixed: these get a domain of one value, and
// the tables lose them.
FactorGraph shapeWithFixed(const FactorGraph &graph, const std::vector<bool> &fixed) {
  FactorGraph result{graph.domains, {}};
  for (size_t v = 0; v < fixed.size(); ++v)
    if (fixed[v]) result.domains[v] = 1;
  for (const Table &table : graph.tables) {
    Table smaller;
    for (int v : table.scope)
      if (!fixed[size_t(v)]) smaller.scope.push_back(v);
    result.tables.push_back(std::move(smaller));
  }
  return result;
}

// The graph conditioned on the values that `assignment` gives to the fixed variables: a table keeps the entries that
// agree with them.
FactorGraph conditionOn(const FactorGraph &graph, const std::vector<bool> &fixed, const std::vector<int> &assignment) {
  FactorGraph result = shapeWithFixed(graph, fixed);
  for (size_t t = 0; t < graph.tables.size(); ++t) {
    const Table &table = graph.tables[t];
    std::vector<size_t> strides; // of the free variables
    size_t stride = 1, offset = 0, entries = 1;
    for (size_t i = table.scope.size(); i-- > 0;) {
      const size_t v = size_t(table.scope[i]), domain = size_t(graph.domains[v]);
      if (fixed[v]) {
        offset += stride * size_t(assignment[v]);
      } else {
        strides.insert(strides.begin(), stride);
        entries *= domain;
      }
      stride *= domain;
    }
    Table &smaller = result.tables[t];
    std::vector<int> index(strides.size(), 0); // of the entry, by free variable
    smaller.values.reserve(entries);
    for (size_t entry = 0; entry < entries; ++entry) {
      smaller.values.push_back(table.values[offset]);
      for (size_t i = strides.size(); i-- > 0;) {
        const int domain = graph.domains[size_t(smaller.scope[i])];
        offset += strides[i];
        if (++index[i] < domain) break;
        offset -= strides[i] * size_t(domain);
        index[i] = 0;
      }
    }
  }
  return result;
}

// Neighbours of every variable.
std::vector<std::set<int>> neighboursOf(const FactorGraph &graph) {
  std::vector<std::set<int>> neighbours(graph.domains.size());
  for (const Table &table : graph.tables)
    for (int a : table.scope)
      for (int b : table.scope)
        if (a != b) neighbours[size_t(a)].insert(b);
  return neighbours;
}

} // namespace

std::vector<Turn> turnsOf(const FactorGraph &graph, size_t widest) {
  constexpr size_t numTurns = 3;
  const size_t count = graph.domains.size();
  const std::vector<std::set<int>> neighbours = neighboursOf(graph);
  std::vector<int> order(count);
  for (size_t v = 0; v < count; ++v) order[v] = int(v);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(neighbours[size_t(b)].size(), a) < std::pair(neighbours[size_t(a)].size(), b);
  });
  std::vector<Turn> turns;
  for (size_t turn = 0; turn < numTurns; ++turn)
    // The fewest fixed variables that suffice, up to a factor of 2.
    for (size_t numFixed = std::max<size_t>(1, count / 32); numFixed < count; numFixed *= 2) {
      std::vector<bool> fixed(count, false);
      for (size_t i = 0, taken = 0; i < count && taken < numFixed; ++i) {
        if ((i + turn) % numTurns == numTurns - 1) continue; // every turn frees other ones
        fixed[size_t(order[i])] = true;
        ++taken;
      }
      std::optional<std::vector<Elimination>> steps = eliminationOrder(shapeWithFixed(graph, fixed), widest);
      if (!steps) continue;
      turns.push_back({std::move(fixed), std::move(*steps)});
      break;
    }
  return turns;
}

const EliminationPlan &EliminationPlans::of(const FactorGraph &graph) {
  constexpr int end = -1;
  std::vector<int> shape = graph.domains;
  for (const Table &table : graph.tables) {
    shape.push_back(end);
    shape.insert(shape.end(), table.scope.begin(), table.scope.end());
  }
  auto [found, isNew] = known.try_emplace(std::move(shape));
  EliminationPlan &plan = found->second;
  if (!isNew) return plan;
  plan.order = eliminationOrder(graph);
  if (!plan.order) plan.turns = turnsOf(graph);
  return plan;
}

Minimum improveInTurns(const FactorGraph &graph, const std::vector<Turn> &turns) {
  const size_t count = graph.domains.size();
  // Start: the first value of everything, "whole" where that is a choice; a variable that this forbids takes the first
  // value its neighbours allow.
  std::vector<std::vector<const Table *>> tablesOf(count);
  for (const Table &table : graph.tables)
    for (int v : table.scope) tablesOf[size_t(v)].push_back(&table);
  Minimum best{infinity, -infinity, std::vector<int>(count, 0)};
  for (int round = 0; round < 3; ++round)
    for (size_t v = count; v-- > 0;) {
      double least = infinity;
      int value = best.assignment[v];
      for (int d = 0; d < graph.domains[v]; ++d) {
        double sum = 0;
        for (const Table *table : tablesOf[v]) {
          size_t offset = 0;
          for (int other : table->scope)
            offset = offset * size_t(graph.domains[size_t(other)]) +
                     size_t(other == int(v) ? d : best.assignment[size_t(other)]);
          sum += table->values[offset] == infinity ? 1e6 : table->values[offset];
        }
        if (sum < least) {
          least = sum;
          value = d;
        }
      }
      best.assignment[v] = value;
    }
  best.value = valueOf(graph, best.assignment);
  for (size_t round = 0; round < 2; ++round) {
    const double before = best.value;
    for (const Turn &turn : turns) {
      Minimum found = eliminate(conditionOn(graph, turn.fixed, best.assignment), turn.order);
      for (size_t v = 0; v < count; ++v)
        if (turn.fixed[v]) found.assignment[v] = best.assignment[v];
      const double value = valueOf(graph, found.assignment);
      if (value < best.value) {
        best.value = value;
        best.assignment = std::move(found.assignment);
      }
    }
    if (best.value >= before) break;
  }
  return best;
}

} // namespace cleave::planner
