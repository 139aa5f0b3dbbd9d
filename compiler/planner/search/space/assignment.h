// Solves the inner problem (split_model.h): the assignment with the least step time that fits the memory.
//
// Step time is a sum of tables over neighbouring choices, but for one term: communication beyond what compute can hide,
// max(0, x). For theta in {0, 1} the sum with theta * x instead is exact to minimise and a lower bound; where its
// minimum already has the true time, it is the optimum. Memory is priced at lambda seconds a byte; every lambda gives
// a lower bound too (Lagrange), and bisection finds the one where the memory is just kept. The workspace is a maximum,
// no sum: where it is too large, the candidates that need most of it are forbidden, one size after the other.
#pragma once
#include "compiler/planner/cost/step_evaluation.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/space/factor_graph.h"
#include "compiler/planner/search_clock.h"

namespace cleave::planner {

struct Assignment {
  std::vector<int> choice;
  Evaluation evaluation;
  double bound = 0;      // no assignment that fits is faster
  bool fits = false;     // else `choice` is the one with the least memory found
  bool isExact = true;   // false: the graph was too wide to eliminate, `bound` is that of compute alone
  bool isPruned = false; // bound >= `incumbent`: nothing else is filled in
};

class InnerProblem {
public:
  // Prices every choice once; the model must outlive it, and so must `plans`, which problems of like models share.
  explicit InnerProblem(const SplitModel &model, EliminationPlans *plans = nullptr);
  // `memoryLimit` in bytes; stops early when the bound shows that nothing beats `incumbent` seconds, and with the best
  // known when the clock is over.
  Assignment solve(double memoryLimit, double incumbent, const SearchClock &clock = {}) const;
  // No assignment of this model is faster, whatever its communication.
  static double computeBound(const SplitModel &model);
  // The assignment with the least compute and communication that nothing hides, memory and gradient reductions aside.
  Minimum fastest() const { return minimize({0, 0, 1}); }
  // The same where a byte costs `lambda` seconds; where only bytes count.
  Minimum weighted(double lambda) const { return minimize({0, lambda, 1}); }
  Minimum leanest() const { return minimize({0, 1, 1e-6}); }
  bool wasExact() const { return isExact; }
  // The most seconds of all parameters' updates, however they lie.
  double mostUpdateSeconds() const;

private:
  struct Cell {
    double seconds = 0, forward = 0, backward = 0, hideable = 0, bytes = 0, workspace = 0;
  };
  struct PricedTable {
    std::vector<int> scope;
    std::vector<Cell> cells;
  };
  struct Weights {
    double theta = 1, lambda = 0, time = 1;
    double workspace = infinity; // candidates that need more are forbidden
  };

  void findPartsOfPasses();
  void addFlow(const Flow &flow);
  Assignment search(double memoryLimit, double incumbent, const SearchClock &clock) const;
  Minimum minimize(const Weights &weights) const;
  void improve(double theta, double workspace, double memoryLimit, Assignment &best, const SearchClock &clock) const;
  // Bounds the workspace by ever less until the leanest assignment fits; 0 when none does.
  double findWorkspace(double memoryLimit, Assignment &best, const SearchClock &clock) const;
  void offer(const std::vector<int> &choice, double memoryLimit, Assignment &best) const;

  const SplitModel &model;
  double againPart = 1; // of what is computed again, that surely counts
  // And of a byte that passes through buckets and blocks, which hold so much at once (device_memory.h: Workspace).
  struct {
    double buckets = 0, scattered = 0, combined = 0, gathered = 0;
  } ofPasses;
  int largestHome = -1; // the parameter that ZeRO-3's room for gathered ones counts at least
  mutable EliminationPlans ownPlans;
  EliminationPlans *plans;
  mutable const EliminationPlan *plan = nullptr; // of the first minimum on: weights change values only
  mutable bool isExact = true;
  std::vector<int> domains; // the model's variables, then one for each tensor with several readers
  std::vector<PricedTable> tables;
};

} // namespace cleave::planner
