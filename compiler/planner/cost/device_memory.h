// The sum of the costs of a rank's units to a device's memory.
//
//   Cost rank;                    // of all units of a rank, activity and state
//   deviceMemory(setting, rank, live * rank.kept, buffers).total()
#pragma once
#include "compiler/planner/cost.h"
#include "compiler/planner/split/split_model.h"

namespace cleave::planner {

// Bytes, once: of what lies in the host's memory, what is on its way.
double passingBytes(const Cost &rank);

// The memory that a device needs beside kept activations, by purpose.
struct Workspace {
  double always = 0;    // scalars of the step
  double update = 0;    // what the update makes on its way; operations of the passes have the same room
  double buckets = 0;   // of gradients, and of parameters that were updated
  double scattered = 0; // beside buckets: what gradients are scattered to
  double gathered = 0;  // parameters of ZeRO-3, for the operation at work and the next one
  double moved = 0;     // optimizer state of the host's memory
};
Workspace workspaceOf(const Setting &setting, const Cost &rank);
// The bytes of the whole workspace, with `largest` unit's work.
double workspaceBytes(const Setting &setting, double largest, const Cost &rank);
// Beside that, what tp has on its way of these units: parameters that it gathers, gradients that it combines.
double besideOfTensor(const Setting &setting, const Cost &rank);
// The memory of a device with these units: `kept` of all microbatches in flight, `buffers` of its transfers. Gradients
// that have the room of activations by the time they are made count there.
MemoryBreakdown deviceMemory(const Setting &setting, const Cost &rank, double kept, double buffers);

// deviceMemory()'s gradients and workspace by part of the step; the last microbatch's backward pass has all of them. A
// sum over the microbatches is there all step long; else gradients have their room from the backward pass to the
// update. `device`: deviceMemory(), with what this rank sends others.
struct PartOfStep {
  double gradients = 0, workspace = 0;
};
struct MemoryByPart {
  PartOfStep forward, backward, lastBackward, update;
};
MemoryByPart memoryByPart(const Setting &setting, const Cost &rank, const MemoryBreakdown &device);

} // namespace cleave::planner
