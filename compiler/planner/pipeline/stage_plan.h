// Cuts the units of a model into pipeline stages and says which of them are recomputed, so that the slowest rank is as
// fast as it can be within the memory; and prices such a plan by simulating its schedule. One stage without pipeline is
// the same with one rank.
//
//   8 blocks of 3 ms, a head of 4 ms, 4 ranks:   [2 blocks] [2] [2] [2, head]  10 ms the slowest
//                                                 [2] [3] [2] [1, head]         9 ms
#pragma once
#include "compiler/planner/cost/activity_costs.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/pipeline/schedule_profile.h"
#include <optional>
#include <span>

namespace cleave::planner {

struct StageProblem {
  const SplitModel *model = nullptr;
  const ActivityCosts *activity = nullptr;
  const StateCosts *state = nullptr;
  const ScheduleProfile *profile = nullptr; // null: no pipeline
  double memoryLimit = 0;                   // bytes of a device
  std::optional<Recompute> recompute;       // of every block; open: as much as the memory asks for, block by block
  std::vector<Recompute> allowed;           // when open
  std::vector<Recompute> ofStage = {}, ofUnit = {}; // given one by one, for every stage or every unit; empty: not given
  std::vector<int> firstUnits = {};                 // of each stage, when given; empty: open

  int ranks() const { return profile ? profile->ranks : 1; }
  int stages() const { return profile ? profile->stages : 1; }
  int rankOf(int stage) const { return profile ? profile->rankOfStage[size_t(stage)] : 0; }
  // The given way of a unit in a stage; nothing where memory decides.
  std::optional<Recompute> given(int stage, int unit) const {
    if (!ofStage.empty()) return ofStage[size_t(stage)];
    if (!ofUnit.empty()) return ofUnit[size_t(unit)];
    return std::nullopt;
  }
  bool isGiven() const { return !ofStage.empty() || !ofUnit.empty(); }
  // Bytes that a unit keeps of a microbatch.
  double kept(const Cost &unit) const { return unit.kept + (profile && profile->splitsBackward ? unit.held : 0); }
  // Microbatches that a stage has slots for, and the least of a rank's stages.
  double live(int stage) const { return profile ? profile->live[size_t(stage)] : 1; }
  double leastLive(int rank) const { return profile ? profile->leastLive[size_t(rank)] : 1; }
  int64_t devicesOfRank() const { return model->setting.devices() / model->setting.pp; }
  // How far what a rank sends another goes.
  Tier tierBetween(int from, int to) const { return model->setting.tierBetweenRanks(*model->cluster, from, to); }
  // Which of a device's links a message between ranks goes over (StageTimes): inside the node, or to other nodes.
  int linkBetween(int from, int to) const { return tierBetween(from, to) == inNode ? 0 : 1; }
};

struct StagePlan {
  std::vector<int> firstUnits;      // of each stage
  std::vector<Recompute> recompute; // of each unit
  double seconds = 0;               // of a step, by formula; evaluatePlan simulates
  double bound = 0;                 // no cut that fits is faster; sharper: whole_units.h, stage_bound.h
  bool isPruned = false;            // of no interest: only the bound is filled in
  bool isTight = false;             // memory makes some cut or recomputation slower
  double bytes = 0;                 // of the device that needs most
  bool fits = false;
};

// Bytes that a stage needs at a border, before a unit, for what it sends and receives there, activations and gradients:
// two buffers a transfer, so that it overlaps with computing. And what the stage of units [first, end) needs at both of
// its borders, with what it receives of each microbatch that it holds.
double borderBytes(const StageProblem &problem, int unit);
double transferBytes(const StageProblem &problem, int stage, int first, int end);

// Could all ranks together hold what stays from step to step (parameters, gradients, optimizer state)? Else no cut
// fits.
bool hasRoomForState(const SplitModel &model, const StateCosts &state, double memoryLimit, int ranks);

// No cut that fits is faster, whatever ZeRO stage the parameters have: of `problem.state`, the highest one's, no more
// than its bytes count. `isTight` as in StagePlan, against `worth`.
double leastOfAnyStage(const StageProblem &problem, double worth, bool &isTight);

// Seconds a step of collectives over gradients and parameters that compute cannot hide, at least; the mean of the
// ranks.
double leastNotHidden(const StageProblem &problem);

// The plans that are of interest, in seconds of a step.
struct PlanWorth {
  double bound = infinity;   // that may be faster
  double formula = infinity; // that are faster by formula
};
// Nothing when there are fewer units than stages. Only a bound where no plan can be of interest.
std::optional<StagePlan> planStages(const StageProblem &problem, const PlanWorth &worth = {});
// Stages of as many blocks each, for schedules whose ranks take turns with several chunks (interleaved, V): those are
// made for chunks that take equally long. Empty where blocks do not divide, or where what stands before or after the
// blocks is longer than a block: a block less would make up for it.
std::vector<int> evenChunks(const StageProblem &problem);
// The plan with stages that begin with these units.
StagePlan planCut(const StageProblem &problem, const std::vector<int> &firstUnits);

// How many units a stage can have. The problem must outlive it.
class StageRoom {
public:
  explicit StageRoom(const StageProblem &problem);
  // Seconds of a microbatch through all units before each, where memory makes nothing be computed again.
  const std::vector<double> &secondsBefore() const { return before; }
  // The first unit of a stage whose units end before `end` and take `slowest` seconds of a microbatch at most, with
  // what memory makes it compute again; `end`: not even one does.
  int earliestStart(int stage, int end, double slowest) const;

private:
  const StageProblem &problem;
  std::vector<double> before;
};

// A step's seconds at least, however unequal the ranks' loads are: `seconds` of one microbatch through all stages.
double leastOfAnyCut(const ScheduleShape &shape, int64_t microbatches, double seconds);

// A rank's part in summing up the gradient of a parameter that several ranks have.
struct TiedGradient {
  int variable = 0;
  double bytes = 0, seconds = 0; // sent, to all others; of a step
};

// A plan whose step is faster by less than this part is the same one.
inline constexpr double leastGain = 1e-9;

struct PlanEvaluation {
  Predicted predicted; // memory: of the device that needs most
  std::vector<StageDecision> stages;
  std::vector<TiedGradient> tied; // of all ranks
  double notHidden = 0;  // seconds of a rank's collectives that compute could hide if there were more of it, at most
  double contention = 0; // seconds that a device waits longer for others' use of a link (Hidden), on average
  bool fits = false;
};
PlanEvaluation evaluatePlan(const StageProblem &problem, const StagePlan &plan);

// The table that a plan is priced with: long ones are cut short, and the slowest rank does the microbatches that are
// left. Nothing when the kind cannot have such a table.
struct SimulatedSchedule {
  PipelineSchedule table;
  int64_t rest = 0;
};
std::optional<SimulatedSchedule> simulatedSchedule(const StageProblem &problem, std::span<const StageTimes> stages);

// The times of the stage as it is simulated. Where its messages and the transfers its passes wait for use one link,
// both come later.
StageTimes timesOf(const StageDecision &stage);
// The times that a schedule that follows the stages' times is made from: the same table is priced and executed.
StageTimes scheduleTimes(const std::vector<StageDecision> &stages);
StageTimes scheduleTimes(std::span<const StageTimes> stages);

} // namespace cleave::planner
