#include "compiler/planner/infinity.h"
#include "compiler/planner/search/space/factor_graph.h"
#include <algorithm>
#include <gmock/gmock.h>
#include <random>

namespace cleave::planner {
namespace {

FactorGraph randomGraph(unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> cost(-1, 3);
  FactorGraph graph;
  int variables = 3 + int(random() % 4);
  for (int v = 0; v < variables; ++v) graph.domains.push_back(1 + int(random() % 4));
  for (unsigned t = 0; t < 4 + random() % 8; ++t) {
    Table table;
    for (int v = 0; v < variables && table.scope.size() < 3; ++v)
      if (random() % 3 == 0) table.scope.push_back(v);
    size_t entries = 1;
    for (int v : table.scope) entries *= size_t(graph.domains[size_t(v)]);
    for (size_t i = 0; i < entries; ++i)
      table.values.push_back(!table.scope.empty() && random() % 8 == 0 ? infinity : cost(random));
    graph.tables.push_back(std::move(table));
  }
  return graph;
}

double bruteForce(const FactorGraph &graph) {
  std::vector<int> assignment(graph.domains.size(), 0);
  double best = infinity;
  while (true) {
    best = std::min(best, valueOf(graph, assignment));
    size_t v = 0;
    while (v < assignment.size() && ++assignment[v] == graph.domains[v]) assignment[v++] = 0;
    if (v == assignment.size()) return best;
  }
}

TEST(FactorGraph, EliminationFindsTheMinimum) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    FactorGraph graph = randomGraph(seed);
    const auto order = eliminationOrder(graph);
    ASSERT_TRUE(order);
    for (bool isOther : {false, true}) { // graphs that differ in values share an order
      if (isOther)
        for (Table &table : graph.tables) std::ranges::reverse(table.values);
      const Minimum minimum = eliminate(graph, *order);
      double best = bruteForce(graph);
      if (best == infinity) {
        EXPECT_EQ(minimum.value, infinity);
        continue;
      }
      EXPECT_NEAR(minimum.value, best, 1e-9) << "seed " << seed;
      EXPECT_NEAR(valueOf(graph, minimum.assignment), best, 1e-9) << "seed " << seed;
    }
  }
}

TEST(FactorGraph, TurnsComeCloseWhereEliminationIsTooWide) {
  int exact = 0, possible = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    FactorGraph graph = randomGraph(seed);
    double best = bruteForce(graph);
    Minimum found = improveInTurns(graph, turnsOf(graph, 16));
    if (found.value == infinity) continue;
    ++possible;
    EXPECT_GE(found.value, best - 1e-9) << "seed " << seed;
    EXPECT_NEAR(found.value, valueOf(graph, found.assignment), 1e-9);
    exact += found.value <= best + 1e-9;
  }
  EXPECT_GE(possible, 70);
  EXPECT_GE(exact * 10, possible * 7);
}

TEST(FactorGraph, GraphsOfOneShapeGoOneWay) {
  EliminationPlans plans;
  FactorGraph graph = randomGraph(1), dearer = graph, larger = graph, apart{{2, 3}, {{{0}, {1, 0}}, {{1}, {5, 6, 7}}}};
  for (Table &table : dearer.tables)
    for (double &value : table.values) value *= 3;
  ++larger.domains[0];
  const FactorGraph joined{{2, 3}, {{{0, 1}, {5, 6, 7, 1, 9, 2}}, {{}, {1}}}};
  const EliminationPlan &plan = plans.of(graph);
  EXPECT_EQ(&plan, &plans.of(dearer));
  EXPECT_NE(&plan, &plans.of(larger));
  EXPECT_NE(&plans.of(apart), &plans.of(joined));
  ASSERT_TRUE(plan.order);
  EXPECT_NEAR(eliminate(dearer, *plan.order).value, bruteForce(dearer), 1e-9);
  EXPECT_TRUE(plan.turns.empty());
}

TEST(FactorGraph, GivesUpWhenTablesBecomeTooWide) {
  FactorGraph graph{{4, 4, 4, 4}, {}};
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b) graph.tables.push_back({{a, b}, std::vector<double>(16, 1.0)});
  EXPECT_FALSE(eliminationOrder(graph, 100));
  EXPECT_TRUE(eliminationOrder(graph, 256));
}

} // namespace
} // namespace cleave::planner
