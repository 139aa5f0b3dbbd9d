// Minimises a sum of tables over discrete variables, exactly, by eliminating variables (dynamic programming over the
// graph). Graphs whose tables would become too large for that are improved in turns, without a bound.
//
//   FactorGraph g{{2, 3}, {{{0}, {1, 0}}, {{0, 1}, {5, 6, 7, 1, 9, 2}}}};   // x0 in 0..1, x1 in 0..2
//   eliminate(g, *eliminationOrder(g)).value == 1, assignment {1, 0}
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace cleave::planner {

struct Table {
  std::vector<int> scope;     // ascending variables
  std::vector<double> values; // row-major, the last variable fastest; infinity: forbidden
};

struct FactorGraph {
  std::vector<int> domains;
  std::vector<Table> tables;
};

struct Minimum {
  double value = 0, bound = 0; // bound <= optimum <= value
  std::vector<int> assignment;
};

// One step of an elimination: which variable, and which tables are summed up for it.
struct Elimination {
  int variable = 0;
  std::vector<int> scope;  // of the others in those tables
  std::vector<int> tables; // the graph's, then those that the steps before have made
};
// The smallest table first; nothing when one would have more than `widest` entries. It follows from domains and scopes
// alone: graphs that differ in values share it.
std::optional<std::vector<Elimination>> eliminationOrder(const FactorGraph &graph, size_t widest = size_t(1) << 20);
// value is infinite when no assignment is allowed.
Minimum eliminate(const FactorGraph &graph, const std::vector<Elimination> &order);
// For graphs too wide to eliminate: block coordinate descent. A turn fixes variables with many neighbours and
// eliminates the others exactly; the next turn fixes others. Turns follow from domains and scopes alone, too.
struct Turn {
  std::vector<bool> fixed; // by variable
  std::vector<Elimination> order;
};
std::vector<Turn> turnsOf(const FactorGraph &graph, size_t widest = size_t(1) << 15);
// Until nothing improves. A good assignment; bound is -infinity.
Minimum improveInTurns(const FactorGraph &graph, const std::vector<Turn> &turns);

// How the variables of a graph go: in one order or, where it is too wide for that, in turns.
struct EliminationPlan {
  std::optional<std::vector<Elimination>> order;
  std::vector<Turn> turns; // where there is no order
};
// Found when a graph with these domains and scopes comes for the first time.
class EliminationPlans {
public:
  const EliminationPlan &of(const FactorGraph &graph); // stays where it is

private:
  std::map<std::vector<int>, EliminationPlan> known; // by domains and scopes
};

double valueOf(const FactorGraph &graph, const std::vector<int> &assignment);

} // namespace cleave::planner
