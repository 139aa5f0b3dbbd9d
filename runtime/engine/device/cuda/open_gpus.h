// Which GPUs the ranks of this process run on.
#pragma once
#include "runtime/engine/device/cuda/gpu.h"

namespace cleave::runtime::cuda {

// Whether there is a driver with at least one GPU.
bool hasGpu();
// As many GPUs as this process has ranks, or fewer: then rank i runs on GPU i modulo their number. A process that is
// one of several on its machine takes the GPU of its place among them. Error: what is missing.
Result<std::vector<std::shared_ptr<Gpu>>> openGpus(const plan::Plan &plan, int64_t ranks);

} // namespace cleave::runtime::cuda
