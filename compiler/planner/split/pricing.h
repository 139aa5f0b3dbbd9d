// Prices of the inner problem's choices, one variable or flow at a time: seconds a step and bytes a device.
// step_evaluation.h adds them up.
#pragma once
#include "compiler/planner/cost.h"
#include "compiler/planner/split/split_model.h"

namespace cleave::planner {

// Which uses the readers of a tensor make of it: bit 0 whole, 1 whole with a partial gradient, 2 partial sum,
// 3 + d split in dimension d.
using UseSet = uint64_t;
UseSet bit(const Use &use);

// A collective that an assignment implies, for reports. `times` a step.
struct ImpliedCollective {
  Collective collective;
  AxisSet axes = 0;
  bool isOnRing = false;   // carried out as so many shifts as the group has other members, of keys and of values
  bool isHideable = false; // runs beside compute
  double bytes = 0, seconds = 0, times = 0;
  std::vector<int> tensors; // that it moves, each for the first of its repetitions
  int64_t alike = 1;        // repetitions
  const char *why = "";
  double behindProducts = 0; // of its seconds: hidden behind the products that it stands beside (Device::tensorOverlap)
  bool isOfEachRank = false; // of a pipeline; else of those that have its node or parameter
  double forward = 0, backward = 0; // parts of it that forward and backward passes wait for
};
using CollectiveSink = std::vector<ImpliedCollective>;

// Costs of a step, of all nodes, parameters or tensors that a variable or flow stands for; peaks of one of them.

// The part of a node's backward pass that makes gradients of weights.
double weightPart(const SplitModel &model, const Variable &variable);
// Compute of the passes.
Cost nodePrice(const SplitModel &model, const Variable &variable, size_t candidate);
// Collectives inside the operation (Candidate::exchanges).
Cost exchangePrice(const SplitModel &model, const Variable &variable, size_t candidate, CollectiveSink *sink = nullptr);
// Bytes of a parameter's gradient, once, where one microbatch makes it: the backward pass frees activations meanwhile.
// 0 where gradients are added up, and of a parameter that several units read.
double gradientsInRoom(const SplitModel &model, const Variable &variable, size_t home);
// The cost of parameters: what stays, the update, and the collectives over parameters and gradients.
// `isChoice`: to choose by; where a preset says which weights are split, without what their updates exchange for that.
Cost homePrice(const SplitModel &model, const Variable &variable, size_t home, CollectiveSink *sink = nullptr,
               bool isChoice = false);
// The exchanges of devices once a step, in seconds that nothing hides. The rank that has the loss sums up the
// step's results (the loss, and of how many labels it is the mean, together, which were summed up over the microbatches
// before); every rank the squares of gradients of which each device has a part, for their norm, and with the other
// ranks the results and the norm, one after the other.
struct StepPrice {
  double exposed = 0;    // of the rank that has the loss
  double ofEachRank = 0; // of this: what every rank does
};
StepPrice stepPrice(const SplitModel &model, CollectiveSink *sink = nullptr);
// The bytes that one node and its backward have in hand at once. The largest counts. `handedOn`: gradients of its
// operands as other nodes want them, beside how it makes them.
double nodeWorkspace(const SplitModel &model, const Variable &variable, size_t candidate, double handedOn = 0);
// One operand's part of that, in bytes. It is handed on in another layout than it is made in, and stands in both;
// all-reduces are done where they lie.
double handedOnBytes(const SplitModel &model, const Flow &flow, Layout produced, const Flow::Read &read,
                     size_t candidate);
// The memory that a flow keeps for the backward pass: bytes on the device and in its host's memory, of all it stands
// for; what is computed again, of one segment.
struct KeptBytes {
  double here = 0, onHost = 0;
};
KeptBytes flowBytes(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses);
// The bytes that the sum of a parameter's gradients takes beyond those of the parameter: it is made of gradients as the
// readers' backward passes leave them, whole and partial sums too, and combined at the step's end.
double sumBytes(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses);
// And what tp combines beside it: partial sums that all get the whole of, what comes back split along another
// dimension.
double combinedBytes(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses);
// Bytes that a parameter is gathered to, for each pass that it is gathered for, where it lies split over tp and is read
// otherwise.
double gatheredParameterBytes(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses);
// So many tensors of a flow do not leave for the host's memory: they are read again too soon.
int nearLossOf(const Setting &setting, const Flow &flow);
// `otherCollectiveWeight`: what a preset that wants all-reduces only weighs other collectives by when it chooses (split_model.h).
// `produced`: how the producer leaves it; infinite `communication` when a use cannot be fed from it.
Cost flowPrice(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses, CollectiveSink *sink = nullptr,
               double otherCollectiveWeight = 1);
// The same without what is kept.
Cost transferPrice(const SplitModel &model, const Flow &flow, Layout produced, UseSet uses,
                   CollectiveSink *sink = nullptr, double otherCollectiveWeight = 1);
Layout producedLayout(const SplitModel &model, const Flow &flow, const std::vector<int> &choice);
UseSet usesOf(const SplitModel &model, const Flow &flow, const std::vector<int> &choice);
// Bytes of a microbatch that a device sends, where one stage hands it to another.
double sentBytes(const SplitModel &model, const Flow &flow, const std::vector<int> &choice);
// Is an activation that was gathered for an operation gathered again in the backward pass instead of kept? On a grid,
// which is there to keep parts; and where communication can run beside compute, behind the product of the other
// gradient (Korthikanti et al. 2022, section 4.2.2). The plan does what is priced (Decision::gathersAgain).
bool gathersAgain(const SplitModel &model);
// Is the operation computed again in the backward pass?
bool isComputedAgain(const SplitModel &model, const Variable &variable);
// The seconds and launches that this takes in a microbatch, for one of the nodes that the variable stands for.
double secondsAgain(Recompute how, const Variable &variable, const Candidate &candidate);
double launchesAgain(Recompute how, const Variable &variable, const Candidate &candidate);
// Are the collectives of this flow's forward pass carried out again in the backward pass?
bool isSentAgain(const SplitModel &model, const Flow &flow);
// Is what this flow carries computed again in the backward pass? Then it is kept for one segment at a time.
bool isRecomputed(const SplitModel &model, const Flow &flow);

} // namespace cleave::planner
