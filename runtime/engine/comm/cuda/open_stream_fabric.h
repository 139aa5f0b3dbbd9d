// How GPUs talk: by NCCL between processes, one rank each; within a process, which has any number of ranks on its
// GPUs, by copies.
#pragma once
#include "runtime/engine/comm/cuda/stream_fabric.h"

namespace cleave::runtime::cuda {

// `host`: how the processes of the run meet. Error: NCCL is missing or does not connect the ranks.
Result<std::unique_ptr<StreamFabric>> openStreamFabric(const plan::Plan &plan, const dist::Mesh &mesh,
                                                       std::unique_ptr<Fabric> host, const CudaDevices &devices,
                                                       TimeLimit limit);

} // namespace cleave::runtime::cuda
