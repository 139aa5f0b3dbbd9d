#include "runtime/engine/comm/cuda/open_stream_fabric.h"
#include "runtime/engine/comm/cuda/local_fabric.h"
#include "runtime/engine/comm/cuda/nccl_fabric.h"

namespace cleave::runtime::cuda {

Result<std::unique_ptr<StreamFabric>> openStreamFabric(const plan::Plan &plan, const dist::Mesh &mesh,
                                                       std::unique_ptr<Fabric> host, const CudaDevices &devices,
                                                       TimeLimit limit) {
  if (static_cast<int64_t>(devices.size()) == mesh.numDevices())
    return std::unique_ptr<StreamFabric>(std::make_unique<LocalStreamFabric>(mesh, std::move(host), devices));
  auto nccl = std::make_unique<NcclFabric>(mesh, std::move(host), devices);
  CLEAVE_RETURN_IF_ERROR(nccl->open(plan, limit));
  return std::unique_ptr<StreamFabric>(std::move(nccl));
}

} // namespace cleave::runtime::cuda
