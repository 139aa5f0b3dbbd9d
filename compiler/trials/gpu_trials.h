// Plans for `cleave probe` to time on GPUs: small kernels, memory, matrix products by precision, all-reduces.
//
//   Result<std::vector<runtime::GpuTrial>> trials = gpuTrials(findGpus()[0], 2);
//   (*trials)[2]        kind Product, "fp32", 8192 x 8192 x 8192: the step of its plan is one product
#pragma once
#include "runtime/base/status.h"
#include "runtime/plan/machine_figures.h"

namespace cleave {

// As large as the GPU's memory lets them be measured well; for so many GPUs. `emulate`: also for a grid on this CPU.
Result<std::vector<runtime::GpuTrial>> gpuTrials(const runtime::GpuDescription &gpu, int64_t devices,
                                                 bool emulate = false);

} // namespace cleave
