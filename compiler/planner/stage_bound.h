// How fast can a pipeline at most be, however its units are cut into stages and recomputed? A certificate beside
// stage_plan.h, which finds good plans: no cut that fits the memory is faster than the bound.
//
// A rank is done no sooner than along any path through its schedule's table (schedule/critical_path.h), plus what it
// does after its last pass; and it holds no more than the memory. Any mixture of such sums, with prices for the bytes
// over the limit, is a sum over units, each in some stage: the least over all cuts follows by dynamic programming, and
// is a bound (Lagrange). The best mixture for the cuts met so far is a linear program (bound_mixture.h); its best cut,
// and the longest paths of that, are added to it, and so on (Kelley 1960). A mixture of cuts can be faster than each of
// them: then the cuts are told apart by where a stage begins, and each part is bounded by itself (branch and bound).
// The cuts met on the way are candidates too.
//
//   StageRelaxation relaxation(stages, plan, incumbent);
//   relaxation.tighten(20, 0.99 * incumbent);
//   relaxation.bound()        // seconds; no plan is faster than this and than the incumbent
#pragma once
#include "compiler/planner/schedule/critical_path.h"
#include "compiler/planner/stage_plan.h"

namespace cleave::planner {

class StageRelaxation {
public:
  // `plan`: any cut to begin with. `incumbent`: seconds; plans that are not faster are of no interest.
  StageRelaxation(const StageProblem &problem, const StagePlan &plan, double incumbent);
  // Until the bound is at least `goal` or so many linear programs are solved.
  void tighten(int programs, double goal);
  double bound() const { return best; }
  // Where mixtures had their least values: the first units of stages, the latest last.
  const std::vector<std::vector<int>> &cuts() const { return met; }

private:
  // A cut with recomputation, in the quantities that the bounds are linear in.
  struct Cut {
    std::vector<int> starts;
    std::vector<StageTimes> stages;
    std::vector<double> once, hideable, hidden, bytes; // by rank; hidden: what its compute can hide at most
  };
  // A path, and whether the collectives that nothing can hide come after it.
  struct Row {
    SchedulePath path;
    bool late = false;
  };
  struct Multipliers {
    std::vector<StageTimes> stages;
    std::vector<double> once, late, memory; // by rank; memory: of a byte
    double constant = 0;
  };
  struct Mode {
    double forward = 0, backwardInput = 0, backwardWeight = 0, hidden = 0, kept = 0, bytes = 0;
  };
  struct UnitClass { // units that cost the same
    std::vector<Mode> modes;
    double once = 0, hideable = 0, bytes = 0;
  };
  // What the stage that begins with a unit gets from the one before.
  struct Border {
    double sendForward = 0, sendBackward = 0, in = 0, back = 0; // seconds; bytes
  };

  // The cuts whose stages begin within these units, and a bound for them.
  struct Node {
    std::vector<int> first, last; // by stage
    double bound = 0;
    Multipliers at;           // of the bound
    int stage = -1, unit = 0; // where to part them: the stage begins before the unit, or not; -1: they cannot be
    bool allows(const std::vector<int> &starts) const;
  };

  void gatherUnits();
  void gatherBorders();
  void addRowPaths();
  void addCriticalPaths(const Cut &cut);
  double price(const Mode &mode, const Multipliers &at, int stage) const;
  double seconds(const Row &row, const Cut &cut) const;
  Multipliers mix(const std::vector<double> &weights, const std::vector<double> &prices) const;
  static Multipliers between(const Multipliers &a, const Multipliers &b);
  // The least of a mixture over the node's cuts, and where it is; infinite without any.
  double minimise(const Multipliers &at, const Node &node, std::vector<int> &starts, std::vector<size_t> &modes) const;
  Cut describe(const std::vector<int> &starts, const std::vector<size_t> &modes) const;
  void attempt(const Multipliers &at, Node &node);
  void solve(Node &node, int rounds, double goal);
  void choosePart(Node &node, const std::vector<size_t> &among, const std::vector<double> &points) const;

  const StageProblem &problem;
  double incumbent, best = 0;
  int stages;
  size_t ranks;
  std::vector<Recompute> ways;
  double leastOverhead = 0; // bytes that every rank needs beside what is kept
  std::vector<UnitClass> classes;
  std::vector<int> classOf; // by unit
  std::vector<Border> borders;
  std::optional<SimulatedSchedule> schedule;
  std::vector<Row> rows;
  std::vector<Cut> pool;
  std::vector<std::vector<int>> met;
  int programs = 0; // left
};

} // namespace cleave::planner
