// Kernels for `cleave probe` to time: the compiler's own, so that what it makes of an exponential or of a sum is what
// the planner counts on.
//
//   Result<std::vector<runtime::KernelTrial>> trials = trialKernels(2, runtime::farBytes(2));
//   (*trials)[0].work        "arithmetic": the step of its plan adds and multiplies in the cache
#pragma once
#include "compiler/codegen/codegen.h"
#include "runtime/base/status.h"
#include "runtime/plan/machine_figures.h"

namespace cleave {

// The text of a module with one routine, "step": its persistent tensors with their MLIR types, and what the step does.
std::string trialModule(const std::vector<std::pair<std::string, std::string>> &tensors, const std::string &step);
// The plan of such a text.
Result<plan::Plan> compileTrial(const std::string &text, const dist::Mesh &mesh,
                                const codegen::CodegenOptions &options = {});

// One for each kind of work of planner/cluster.h, for so many devices. `farBytes` of a device no cache keeps.
Result<std::vector<runtime::KernelTrial>> trialKernels(int64_t devices, int64_t farBytes);

} // namespace cleave
