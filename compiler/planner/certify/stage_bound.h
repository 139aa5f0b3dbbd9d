// How fast can a pipeline at most be, however its units are cut into stages and recomputed? A certificate beside
// stage_plan.h, which finds good plans: no cut that fits the memory is faster than the bound.
//
// A rank is done no sooner than along any path through its schedule's table (schedule/critical_path.h), plus what it
// does after its last pass; and it holds no more than the memory. With units that may be cut in parts and lie in any
// order, but the first and the last, that is a linear program: so many units of each kind in each stage, each way of
// recomputation. It knows a few paths; the longest ones at its solution are added, and so on, until there is none that
// is longer (Kelley 1960). Solutions rounded to whole units are candidates for good plans. whole_units.h knows that
// units are whole, but little of schedules.
//
//   boundStages(stages, incumbent, 60, {.goal = 0.99 * incumbent}).seconds     // no cut is faster
#pragma once
#include "compiler/planner/certify/linear_program.h"
#include "compiler/planner/certify/whole_units.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/pipeline/few_cuts.h"
#include "compiler/planner/pipeline/stage_transfers.h"
#include "compiler/schedule/critical_path.h"
#include <span>

namespace cleave::planner {

// The purpose of a bound.
struct BoundWanted {
  double goal = infinity; // seconds: one so high is high enough
  double known = 0;       // one that is had anyway: what cannot rise above it is left
};

class StageRelaxation {
public:
  // `incumbent`: seconds; plans that are not faster are of no interest. `known`: of the same schedule, ranks and
  // microbatches.
  StageRelaxation(const StageProblem &problem, double incumbent, KnownPaths *known = nullptr);
  // Until the bound is as high as wanted, or cannot be, or no path is longer, or it rises no more, or so many programs
  // are solved, or the clock is over: it is a bound at any time.
  void tighten(int programs, const BoundWanted &wanted, const SearchClock &clock = {});
  void keepPaths() const; // in `known`, those that decided
  // Infinite where nothing fits.
  double bound() const { return best; }
  // Solutions of the programs, rounded: the first units of stages, the latest last.
  const std::vector<std::vector<int>> &cuts() const { return met; }

private:
  struct Column { // units of a class, in a stage, recomputed in a way
    int stage = 0, unitClass = 0;
    double forward = 0, backwardInput = 0, backwardWeight = 0; // seconds
    double again = 0;                                          // of these: more than without recomputation
    double once = 0, late = 0;                                 // seconds; late: hideable less what its compute hides
    double bytes = 0;
  };
  // A path, and whether the collectives that nothing can hide come after it. Where devices take turns on cores, also
  // with all that the others do meanwhile (leastOnSharedCores), and nothing after it.
  struct Row {
    SchedulePath path;
    bool late = false;
    bool isFilled = false;
  };
  struct UnitClass { // units that cost the same
    int kind = 0, count = 0;
    bool isFirst = false, isLast = false; // of the model: in the first stage, in the last
    double once = 0, hideable = 0, bytes = 0;
  };

  void gatherClasses();
  void gatherColumns();
  void startProgram();
  double bytesOfTransfers(int stage) const; // at least
  std::vector<Row> rowPaths() const;
  void addPath(std::vector<Row> &rows, const SchedulePath &path, std::initializer_list<bool> late) const;
  double partOf(const Row &row) const; // of the path's seconds
  // Longest paths to the end of every rank, with these stages' times.
  std::vector<Row> criticalRows(const std::vector<double> &units) const;
  std::vector<Row> knownRows() const;
  void addLongest(std::vector<std::pair<double, Row>> found);
  std::vector<double> evenUnits() const;
  double constantOf(const Row &row) const;
  double coefficient(const Row &row, const Column &column) const;
  double seconds(const Row &row, const std::vector<double> &units) const;
  double lengthOf(std::span<const Row> rows, const std::vector<double> &units) const; // the longest
  // Is the point one of the program's: a unit in every stage, and no more bytes on a rank than fit?
  bool isAllowed(const std::vector<double> &units) const;
  void addRows(std::span<const Row> rows);
  void roundSolution(const std::vector<double> &units);
  std::vector<StageTimes> timesOf(const std::vector<double> &units) const;

  const StageProblem &problem;
  KnownPaths *known;
  std::vector<Row> added; // to the program
  size_t firstAdded = 0;  // row of the program
  double incumbent, best = 0;
  int stages;
  size_t ranks;
  double share; // chainShare()
  LeastTransfers least;
  std::vector<StageTimes> transfers; // by stage, without its passes
  std::vector<LeastHeld> held;       // by stage
  std::vector<Recompute> ways;
  double leastOverhead = 0;       // bytes that every rank needs beside what is kept
  std::vector<double> roomOfRank; // bytes for its units; of all ranks, where there is a limit
  std::vector<UnitClass> classes;
  std::vector<int> classOf; // by unit
  std::vector<Column> columns;
  std::optional<SimulatedSchedule> schedule;
  LinearProgram program;
  double scale = 1; // seconds that the program counts as 1, so that its numbers are about 1
  std::vector<std::vector<int>> met;
};

// A bound, or `incumbent` where that is less, and cuts worth trying. Where there are few cuts each is bounded by itself
// (few_cuts.h), else all together. Where the clock is over before that is done, what is known by then.
struct StageBound {
  double seconds = 0;
  std::vector<TimedCut> cuts; // those that were not timed have 0 seconds
};
StageBound boundStages(const StageProblem &problem, double incumbent, int programs, const BoundWanted &wanted,
                       const SearchClock &clock = {}, KnownPaths *paths = nullptr);

} // namespace cleave::planner
