// The memory of a GPU that inputs pass through: the host's scalars and the inputs of every action of a routine lie
// there one behind the other, and its commands begin with copies from there. There are two such stages, so that the
// next step's inputs come while one runs; they are no part of the arena and count against the device's memory.
//
//   forEachStaged(program, routine, [&](const StagedInput &input) { ... });   // in the order in which they lie
//   stagedBytes(plan, program)                                               // of both stages; 0 on CPUs
#pragma once
#include "plan/plan.pb.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/input_stages.h"
#include "runtime/plan/routine.h"
#include <algorithm>

namespace cleave::runtime {

struct StagedInput {
  int action;            // of the routine: its scalars come first, then the inputs of its fragment
  int64_t offset, bytes; // in the stage
};

// Gives the bytes of one stage.
template <typename Visit>
int64_t forEachStaged(const plan::Program &program, const plan::Routine &routine, Visit visit) {
  int64_t offset = 0;
  auto add = [&](int action, const plan::Buffer &buffer) {
    const int64_t bytes = byteSize(buffer);
    visit(StagedInput{action, offset, bytes});
    offset += (bytes + stagedAlignment - 1) / stagedAlignment * stagedAlignment;
  };
  for (int a = 0; a < routine.actions_size(); ++a) {
    for (const plan::HostScalar &scalar : program.host_scalars())
      if (isSetBefore(scalar, static_cast<size_t>(a))) add(a, scalar.buffer());
    for (const plan::InputBinding &input : program.fragments(routine.actions(a).fragment()).inputs())
      add(a, input.buffer());
  }
  return offset;
}

// The bytes of one stage, for whichever routine needs most.
inline int64_t stageBytes(const plan::Program &program) {
  int64_t most = 0;
  for (const plan::Routine &routine : program.routines())
    most = std::max(most, forEachStaged(program, routine, [](const StagedInput &) {}));
  return most;
}

inline int64_t stagedBytes(const plan::Plan &plan, const plan::Program &program) {
  return plan.has_cuda() ? inputStages * stageBytes(program) : 0;
}

} // namespace cleave::runtime
