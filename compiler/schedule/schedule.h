// A pipeline schedule as data: for each pipeline rank the row of actions it runs, in order. The same table is what the
// simulator prices (simulate.h), what the validator proves correct, and what the executor runs.
//
// A model is cut in `stages`; stage s lies on rank rankOfStage[s], and a rank may hold several (its chunks). An action
// is one pass of one microbatch through one stage: Forward, then either Backward (both gradients at once) or
// BackwardInput (the gradient of the stage's input, which the stage before waits for) and later BackwardWeight (which
// nobody waits for).
//
// Worked example: makeSchedule("1f1b", 2, 3, {}) has stages = 2, rankOfStage = {0, 1} and the rows
//     rank 0:  F0 F1 B0 F2 B1 B2        microbatches 0 and 1 go ahead, then one forward, one backward
//     rank 1:  F0 B0 F1 B1 F2 B2
// peakLive = {2, 1}: rank 0 keeps the activations of at most two microbatches. With forward = 1, backwardInput =
// backwardWeight = 1 and no send times, simulate gives makespan 12 = (M + P - 1) * 3 and bubble (P - 1)/(M + P - 1) =
// 1/4.
#pragma once
#include "runtime/base/status.h"
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cleave::planner {

enum class ActionKind : uint8_t { Forward, Backward, BackwardInput, BackwardWeight };

struct ScheduledAction {
  ActionKind kind = ActionKind::Forward;
  int stage = 0;
  int64_t microbatch = 0;
  bool operator==(const ScheduledAction &) const = default;
};

struct PipelineSchedule {
  std::string kind; // as asked for: "interleaved:2", or the path of a CSV file
  int ranks = 0, stages = 0;
  int64_t microbatches = 0;
  std::vector<int> rankOfStage;                   // [stages]
  std::vector<std::vector<ScheduledAction>> rows; // [ranks]
  // Versions of the weights that a rank keeps. 1: gradients are those of the unsplit model. 2 (pipedream-2bw): steps
  // follow each other without a flush (see unrolled) and a step's gradients are taken at the weights before the last
  // update, W(t+1) = W(t) - lr g(W(t-1)), so that the numbers differ from the unsplit model's.
  int weightVersions = 1;
  bool operator==(const PipelineSchedule &) const = default;

  // The stage that the action's result goes to; -1: none.
  int receiver(const ScheduledAction &action) const {
    if (action.kind == ActionKind::BackwardWeight) return -1;
    if (action.kind != ActionKind::Forward) return action.stage - 1;
    return action.stage + 1 < stages ? action.stage + 1 : -1;
  }
};

// Seconds (or any one unit) of one stage's passes for one microbatch. A send's time is spent on the link, beside
// computing: sendForward from this stage to the next, sendBackward from this stage to the one before. A Backward action
// takes backwardInput + backwardWeight. A rank has several links out, by number (inside its node, to other nodes): of
// what it sends over one of them one send is under way at a time.
struct StageTimes {
  double forward = 1, backwardInput = 1, backwardWeight = 1, sendForward = 0, sendBackward = 0;
  int linkForward = 0, linkBackward = 0;

  double of(ActionKind kind) const {
    if (kind == ActionKind::Forward) return forward;
    return (kind == ActionKind::BackwardWeight ? 0 : backwardInput) +
           (kind == ActionKind::BackwardInput ? 0 : backwardWeight);
  }
};

// The share of a stage's activations that the weight gradient still needs: M_W / M_B = 32 / (34 + 5 a s / h)
// of table 1 of the zero-bubble paper, with its models' a s / h = 8 (heads of 128, sequences of 1024).
inline constexpr double kWeightPartOfActivations = 32.0 / 74;

// Makes the table of a kind: gpipe, 1f1b, interleaved:V, looped-bfs (looped-bfs:V), zb-h1, zb-h2, zb-1p, zb-2p, zb-v,
// dualpipev, pipedream-2bw, or a CSV file's path (csv.h; ranks and microbatches must be the file's, or 0). `times` are
// those of a typical stage: zb-1p and zb-2p depend on their ratios, the others not at all.
// Errors (Usage): an unknown kind, which lists the kinds; numbers that the kind cannot have.
Result<PipelineSchedule> makeSchedule(const std::string &kind, int ranks, int64_t microbatches,
                                      const StageTimes &times);

// How many stages the kind has for so many ranks, and whether it halves the backward pass, without making the table.
struct ScheduleShape {
  int ranks = 1, stages = 1;
  bool splitsBackward = false;
  std::vector<int> rankOfStage;
  int weightVersions = 1;                                    // 2: steps run into each other
  int chunks() const { return std::max(1, stages / ranks); } // stages of one rank
  bool isFlushed() const { return weightVersions == 1; }
};
Result<ScheduleShape> scheduleShape(const std::string &kind, int ranks);

// Does the kind's table depend on the stages' times?
bool followsTimes(const std::string &kind);

// "gpipe", "1f1b", "interleaved:V", ...: for messages and help.
std::vector<std::string> scheduleKinds();

// The rows of so many steps one after the other; microbatch i of step k is k * microbatches + i. Steps of a schedule
// with two weight versions run into each other: a rank starts the next step's forwards before this step's last
// backwards.
PipelineSchedule unrolled(const PipelineSchedule &schedule, int64_t steps);

// The actions of a rank in a step of the unrolled schedule, from the end of its last backward pass of the step before
// to that of its own. `before`: forwards of the step that are done when it begins, by the step before or, at a start,
// by themselves. `ahead`: those of the next step, which come in this one; after a last step they are left out.
//
//   pipedream-2bw, 2 ranks, 3 microbatches, rank 0:  before F0;  actions F1 B0 F2 B1 F0' B2, of which F0' is ahead
struct StepActions {
  std::vector<ScheduledAction> before, actions;
  std::vector<bool> ahead; // of each action
};
std::vector<StepActions> stepActions(const PipelineSchedule &schedule); // by rank

// Proves that the table can be run: every (stage, microbatch) has one Forward and either one Backward or both halves,
// on its stage's rank; Forward before BackwardInput before BackwardWeight; every rank running its row in order ends (no
// deadlock); and from each rank to each other the activations, and likewise the gradients, are used in the order in
// which they are sent, as transfers are matched by order. The message names the row and the cell.
Status validate(const PipelineSchedule &schedule);

// For each rank the largest number of (stage, microbatch) activations it holds at a time, from the start of the Forward
// to the end of the Backward or, where the pass is halved, of `until`: BackwardInput is how the papers count (M_B; what
// the weight gradient still needs, M_W, is less and counted by itself), BackwardWeight is what a rank holds that frees
// nothing before. Each counts for one stage: a rank with two chunks counts 2 for a whole microbatch.
std::vector<int64_t> peakLive(const PipelineSchedule &schedule, ActionKind until = ActionKind::BackwardInput);

// For each stage: so many microbatches it holds at most, each until the gradients of its weights are done.
std::vector<int64_t> peakSlots(const PipelineSchedule &schedule);

} // namespace cleave::planner
