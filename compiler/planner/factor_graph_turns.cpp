// Improvement in turns for graphs too wide to eliminate (a network whose layers read all layers before them).
#include "compiler/planner/factor_graph.h"
#include <algorithm>
#include <limits>
#include <set>

namespace cleave::planner {
namespace {

// The graph with some variables held at a value: their tables shrink to the others.
FactorGraph condition(const FactorGraph &graph, const std::vector<bool> &held, const std::vector<int> &assignment) {
  FactorGraph result{graph.domains, {}};
  for (size_t v = 0; v < held.size(); ++v)
    if (held[v]) result.domains[v] = 1;
  for (const Table &table : graph.tables) {
    Table smaller;
    for (int v : table.scope)
      if (!held[size_t(v)]) smaller.scope.push_back(v);
    for (size_t entry = 0; entry < table.values.size(); ++entry) {
      size_t rest = entry;
      bool matches = true;
      for (size_t i = table.scope.size(); i-- > 0 && matches;) {
        size_t v = size_t(table.scope[i]), domain = size_t(graph.domains[v]);
        matches = !held[v] || int(rest % domain) == assignment[v];
        rest /= domain;
      }
      if (matches) smaller.values.push_back(table.values[entry]);
    }
    result.tables.push_back(std::move(smaller));
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

Minimum improveInTurns(const FactorGraph &graph, size_t widest) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  size_t count = graph.domains.size();
  std::vector<std::set<int>> neighbours = neighboursOf(graph);
  std::vector<int> order(count);
  for (size_t v = 0; v < count; ++v) order[v] = int(v);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(neighbours[size_t(b)].size(), a) < std::pair(neighbours[size_t(a)].size(), b);
  });
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
  // Hold as few as it takes; start with other ones each turn.
  for (size_t turn = 0; turn < 6; ++turn) {
    double before = best.value;
    for (size_t hold = std::max<size_t>(1, count / 32); hold < count; hold *= 2) {
      std::vector<bool> held(count, false);
      for (size_t i = 0, taken = 0; i < count && taken < hold; ++i) {
        if ((i + turn) % 3 == 2) continue; // every turn lets other ones go
        held[size_t(order[i])] = true;
        ++taken;
      }
      const FactorGraph rest = condition(graph, held, best.assignment);
      const std::optional<std::vector<Elimination>> steps = eliminationOrder(rest, widest);
      if (!steps) continue;
      Minimum found = eliminate(rest, *steps);
      for (size_t v = 0; v < count; ++v)
        if (held[v]) found.assignment[v] = best.assignment[v];
      double value = valueOf(graph, found.assignment);
      if (value < best.value) {
        best.value = value;
        best.assignment = std::move(found.assignment);
      }
      break;
    }
    if (turn >= 3 && best.value >= before) break;
  }
  return best;
}

} // namespace cleave::planner
