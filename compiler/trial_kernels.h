// Kernels for `cleave probe` to time: the compiler's own, so that what it makes of an exponential or of a sum is what
// the planner counts on.
//
//   Result<std::vector<runtime::KernelTrial>> trials = trialKernels(2);
//   (*trials)[0].work        "arithmetic": the step of its plan adds and multiplies in the cache
#pragma once
#include "compiler/codegen/codegen.h"
#include "runtime/probe/machine.h"

namespace cleave {

// The plan of a module's text, which has one routine, "step".
Result<plan::Plan> compileTrial(const std::string &text, const dist::Mesh &mesh,
                                const codegen::CodegenOptions &options = {});

// One for each kind of work of planner/cluster.h, for so many devices.
Result<std::vector<runtime::KernelTrial>> trialKernels(int64_t devices);

} // namespace cleave
