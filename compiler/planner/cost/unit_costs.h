// What units of the model (stage_units.h) cost, and what adds them up to a device's memory.
//
//   UnitMemory work;  UnitState state;               // of all units of a rank
//   deviceMemory(setting, state, work, live * work.kept, buffers).total()
#pragma once
#include "compiler/planner/split/split_model.h"
#include <algorithm>

namespace cleave::planner {

// Bytes of one device that a unit's passes need.
struct UnitMemory {
  double kept = 0;            // for each microbatch in flight
  double held = 0;            // likewise, where the backward pass is two functions: what the first makes for the second
  double keptOnHost = 0;      // likewise, in the host's memory
  double largestLeaving = 0;  // of that: most that comes back at once
  double transient = 0;       // once, while the unit is computed again
  double keptOfLast = 0;      // once: what the last microbatch keeps, where it alone is not recomputed
  double sums = 0;            // once: what sums of gradients take more than parameters lie (pricing.h: sumBytes); of
                              // parameters that several units read it is in UnitState
  double combined = 0;        // once: of gradients, what is combined over tp beside them (pricing.h: combinedBytes)
  double gathered = 0;        // of parameters that tp gathers, whole, for each time (pricing.h: gatheredParameterBytes)
  double largestGathered = 0; // of that: one parameter
  double workspace = 0;       // of its largest operation
  double beside = 0;          // transient and workspace together, of the unit that needs most of both
  bool isAgain = false;       // a whole unit is computed again

  double passing() const; // once: of what lies in the host's memory, what is on its way
  UnitMemory &operator+=(const UnitMemory &other) { return add(other, 1); }
  // So many units of it one after the other: what a unit needs beside, it needs once.
  UnitMemory &add(const UnitMemory &one, double count) {
    kept += count * one.kept;
    held += count * one.held;
    keptOnHost += count * one.keptOnHost;
    largestLeaving = std::max(largestLeaving, one.largestLeaving);
    transient = std::max(transient, one.transient);
    keptOfLast += count * one.keptOfLast;
    sums += count * one.sums;
    combined += count * one.combined;
    gathered += count * one.gathered;
    largestGathered = std::max(largestGathered, one.largestGathered);
    workspace = std::max(workspace, one.workspace);
    beside = std::max(beside, one.beside);
    isAgain |= one.isAgain;
    return *this;
  }
};

// And seconds of one microbatch.
struct UnitActivity : UnitMemory {
  double forward = 0, backwardInput = 0, backwardWeight = 0; // with the collectives that nothing hides
  double communication = 0;                                  // those collectives
  double communicationForward = 0;                           // of these: in the forward pass
  double again = 0;                                          // of backwardInput: forward work done again
  double waiting = 0;                                        // of all three: the device waits for the host
  LinkSeconds links, linksForward;                           // of the collectives, as `communication`

  double seconds() const { return forward + backwardInput + backwardWeight; }
  double compute() const { return seconds() - communication; }
  double computeForward() const { return forward - communicationForward; }
  UnitActivity &operator+=(const UnitActivity &other) { return add(other, 1); }
  // So many units of it: a search does little else.
  UnitActivity &add(const UnitActivity &one, double count) {
    UnitMemory::add(one, count);
    forward += count * one.forward;
    backwardInput += count * one.backwardInput;
    backwardWeight += count * one.backwardWeight;
    communication += count * one.communication;
    communicationForward += count * one.communicationForward;
    again += count * one.again;
    waiting += count * one.waiting;
    links.add(one.links, count);
    linksForward.add(one.linksForward, count);
    return *this;
  }
};

// What a unit costs once a step: its parameters.
struct UnitState {
  double parameters = 0, gradients = 0, optimizer = 0; // bytes
  double update = 0, exposed = 0, hideable = 0;        // seconds
  double hideableLower = 0;                            // of hideable: of parameters with Setting::lowerZero
  LinkSeconds hideableLinks = {};
  double host = 0, hostSeconds = 0, hostExposed = 0; // in the host's memory; copies, and their part of `exposed`
  double largestParameter = 0;                       // bytes of its largest, not split by ZeRO
  double gatheredAgain = 0;                          // bytes: parameters that ZeRO-3 has gathered at once while a
                                                     // segment is computed again and its gradients are made
  double elements = 0;                               // of all devices together
  double largestGradient = 0;                        // bytes, likewise
  double means = 0;                                  // bytes of gradients as the update reads them, beside their sums
  double largestUpdate = 0;                          // bytes that the update of one parameter makes on its way
  double largestState = 0;                           // bytes of optimizer state of one parameter, in the host's memory
  double sums = 0;                                   // bytes: what sums of gradients take more (UnitMemory::sums)
  double bytes() const { return parameters + gradients + optimizer; }
  UnitState &operator+=(const UnitState &other) { return add(other, 1); }
  UnitState &add(const UnitState &one, double count); // of so many units
};

// What a device needs beside what is kept, by what it is for.
struct Workspace {
  double always = 0;    // scalars of the step
  double update = 0;    // what the update makes on its way; operations of the passes have the same room
  double buckets = 0;   // of gradients, and of parameters that were updated
  double scattered = 0; // beside buckets: what gradients are scattered to
  double gathered = 0;  // parameters of ZeRO-3, for the operation at work and the next one
  double moved = 0;     // optimizer state of the host's memory
};
Workspace workspaceOf(const Setting &setting, const UnitState &state);
// Of all of it, with `largest` unit's work.
double workspaceBytes(const Setting &setting, double largest, const UnitState &state);
// Beside that, what tp has on its way of these units: parameters that it gathers, gradients that it combines.
double besideOfTensor(const Setting &setting, const UnitState &state, const UnitMemory &work);
// Of a device with these units: `kept` of all microbatches in flight, `buffers` of its transfers.
MemoryBreakdown deviceMemory(const Setting &setting, const UnitState &state, const UnitMemory &work, double kept,
                             double buffers);

// deviceMemory()'s gradients and workspace by part of the step; the last microbatch's backward pass has all of them. A
// sum over the microbatches is there all step long; else gradients have their room from the backward pass to the
// update. `device`: deviceMemory(), with what this rank sends others.
struct PartOfStep {
  double gradients = 0, workspace = 0;
};
struct MemoryByPart {
  PartOfStep forward, backward, lastBackward, update;
};
MemoryByPart memoryByPart(const Setting &setting, const UnitState &state, const UnitMemory &work,
                          const MemoryBreakdown &device);

} // namespace cleave::planner
