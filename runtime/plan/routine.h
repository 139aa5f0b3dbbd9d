// Routines: what a device runs in a step, action by action, and which program, memory and thread each part belongs to.
//
//   rank 1 of a pipeline of two, four microbatches (1f1b), two slots:
//     "step"  forward.1 m0 slot 0, backward.1 m0 slot 0, forward.1 m1 slot 1, backward.1 m1 slot 1, ..., update
//   without a pipeline: accumulate m0, accumulate m1, accumulate m2, final m3
//
// Where steps run into each other (pipedream-2bw) a rank computes forwards of the next step before this one's last
// backwards, and three routines make up a training: "fill", the forwards that are done when a step begins, where there
// was no step before it; "step", which has forwards of the next step (Action.ahead); and "drain", a last step, without
// them. Nothing else may run between: what they hold over lies in slots and in message buffers.
//
//   rank 0 of two, three microbatches:  fill  F0    step  F1 B0 F2 B1 F0' B2 update    drain  F1 B0 F2 B1 B2 update
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/sharding/mesh.h"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cleave::runtime {

// The commands of a device lie in lanes (a GPU's streams), each in its order: compute, communication (sends and
// collectives), receives, which run ahead of the others as far as their memory is free, copies from and to the host's
// memory, a lane each way, as the link has, and on a GPU the collectives along each mesh axis, those of several axes
// with the outermost one's.
constexpr int computeLane = 0, communicationLane = 1, receiveLane = 2, fetchLane = 3, evictLane = 4, firstAxisLane = 5;
constexpr int numLanes = firstAxisLane + 8; // axes of a mesh that have a lane: the first ones
int laneOf(const plan::Command &command);
// "contract", "all_reduce", ...
std::string kindName(const plan::Command &command);
std::vector<int> lanesOf(const plan::Program &program); // compute, and those that have commands; in their order
// The lane of a GPU's collective; one between pipeline stages is in turn with sends.
int laneAlong(const dist::Mesh &mesh, const dist::Axes &axes);
std::string laneName(int lane, const plan::Mesh &mesh); // "compute", ..., "communication over dp"

// The program that a device runs: the one of its coordinate along "pp", or the only one.
int programOf(const plan::Plan &plan, const dist::Mesh &mesh, int64_t device);
// A device's places are one line of bytes: its arena from 0 on, and what lies in the host's memory from here on.
constexpr int64_t hostMemory = int64_t(1) << 60;

// Where the devices of a program hold the parameter, as a place; none: they do not.
std::optional<int64_t> offsetIn(const plan::Parameter &parameter, int program);
// The least coordinate along "pp" that holds it.
int64_t firstHolder(const plan::Parameter &parameter);

// Null: the program has no such routine.
const plan::Routine *findRoutine(const plan::Program &program, const std::string &name);
// Whether steps run into each other: there are "fill" and "drain" beside "step".
bool stepsOverlap(const plan::Plan &plan);
// Routines as they run one after the other, such that each way of going on is in one: {"fill", "step", "step", "drain"}
// and {"fill", "drain"}; {"step"}; {"evaluate"}.
std::vector<std::vector<std::string>> routineChains(const plan::Plan &plan);

// The actions of a program over a chain. `step`: counted from the chain's first one.
struct ChainAction {
  const plan::Action *action;
  int64_t step;
  int routine; // its place in the chain
};
std::vector<ChainAction> actionsOf(const plan::Program &program, const std::vector<std::string> &chain);
// "routine 'step'", "routines fill, step, step, drain": for messages.
std::string chainName(const std::vector<std::string> &chain);

// All inputs of a routine over all programs, each name once, in the order of the programs and their actions.
std::vector<const plan::InputBinding *> inputsOf(const plan::Plan &plan, const std::string &routine);
// "fill" and "drain" have those of "step", whose parts they are.
// How many microbatches its actions name; likewise.
int64_t microbatchesOf(const plan::Plan &plan, const std::string &routine);

// Whether the host sets the scalar before an action of a routine: all but STEP are the same for all microbatches.
inline bool isSetBefore(const plan::HostScalar &scalar, size_t action) {
  return action == 0 || scalar.kind() == plan::HostScalar::STEP;
}

// The place of a buffer when its action has this slot.
int64_t placeOf(const plan::Buffer &buffer, const plan::Program &program, const plan::Fragment &fragment, int32_t slot);
bool usesSlot(const plan::Fragment &fragment);
// The message with every in_slot buffer placed in the arena, or in the host's memory.
template <typename Message>
Message inSlot(const Message &message, const plan::Program &program, const plan::Fragment &fragment, int32_t slot);
// Every Buffer within a message.
void forEachBuffer(google::protobuf::Message &message, const std::function<void(plan::Buffer &)> &visit);

template <typename Message>
Message inSlot(const Message &message, const plan::Program &program, const plan::Fragment &fragment, int32_t slot) {
  Message placed = message;
  forEachBuffer(placed, [&](plan::Buffer &buffer) {
    if (!buffer.in_slot()) return;
    buffer.set_offset(placeOf(buffer, program, fragment, slot) - (buffer.on_host() ? hostMemory : 0));
    buffer.clear_in_slot();
  });
  return placed;
}

// An action's name in traces and errors: "F 3 stage 1" of fragment "forward.1" and microbatch 3 ("B", and "I" and "W"
// for the two halves of a backward pass); "accumulate 2" of one that is of no stage.
std::string actionName(const plan::Fragment &fragment, int64_t microbatch);

} // namespace cleave::runtime
