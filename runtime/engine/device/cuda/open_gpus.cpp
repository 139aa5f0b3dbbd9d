#include "runtime/engine/device/cuda/open_gpus.h"
#include "runtime/engine/comm/launch.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime::cuda {

bool hasGpu() {
  Result<int> count = Gpu::count();
  return count && *count > 0;
}

Result<std::vector<std::shared_ptr<Gpu>>> openGpus(const plan::Plan &plan, int64_t ranks) {
  auto lacking = [&](const Status &why) {
    return runError(
        fmt::format("the plan is for GPUs of compute capability {} and cannot start here: {}; compiled with "
                    "--emulate, its kernels run on this CPU",
                    plan.cuda().target(), why.message()));
  };
  Result<int> count = Gpu::count();
  if (!count) return lacking(count.status());
  if (*count == 0) return lacking(runError("the driver finds no GPU (CUDA_VISIBLE_DEVICES may hide them)"));
  CLEAVE_ASSIGN_OR_RETURN(Launch launch, readLaunch());
  std::vector<std::shared_ptr<Gpu>> gpus;
  for (int64_t i = 0; i < std::min<int64_t>(ranks, *count); ++i) {
    int64_t ordinal = launch.kind == Launch::Kind::Alone ? i : launch.localRank;
    if (ordinal >= *count) // a launcher that shows each process its own GPU only
      ordinal = *count == 1 ? 0 : ordinal;
    if (ordinal >= *count)
      return lacking(inputError(fmt::format("this is process {} of its machine, which has {} GPUs: start one a GPU",
                                            launch.localRank, *count)));
    CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<Gpu> gpu, Gpu::open(static_cast<int>(ordinal), plan));
    gpus.push_back(std::move(gpu));
  }
  for (const std::shared_ptr<Gpu> &gpu : gpus)
    for (const std::shared_ptr<Gpu> &other : gpus) {
      if (other == gpu) continue;
      if (!gpu->virtualMemory)
        return lacking(runError(fmt::format("GPU {} ({}) has no virtual memory interface to share its memory by: start "
                                            "one process a GPU (torchrun, mpirun, srun)",
                                            gpu->ordinal, gpu->name)));
      gpu->peers.push_back(other.get());
    }
  return gpus;
}

} // namespace cleave::runtime::cuda
