#include "runtime/engine/device/cuda/memory.h"
#include "runtime/engine/device/cuda/gpu.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime::cuda {
namespace {
Status noMemory(const Gpu &gpu, int error, int64_t bytes) {
  size_t free = 0, total = 0;
  gpu.driver.memGetInfo(&free, &total);
  Status why = driverStatus(gpu.driver, error, "the allocation failed");
  return runError(fmt::format("GPU {} ({}) has no room for {} MiB: {} of {} MiB are free ({}); split the model over "
                              "more devices, or end what else uses the GPU",
                              gpu.ordinal, gpu.name, (bytes + 1048575) / 1048576, free / 1048576, total / 1048576,
                              why.message()));
}
} // namespace

DeviceMemory::~DeviceMemory() {
  if (!driver) return;
  driver->ctxSetCurrent(context);
  if (!reserved) {
    if (base) driver->memFree(base);
    return;
  }
  if (mapped) driver->memUnmap(base, reserved);
  if (handle) driver->memRelease(handle);
  driver->memAddressFree(base, reserved);
}

Status DeviceMemory::map(const Gpu &gpu, size_t wanted) {
  AllocationProperties properties{};
  properties.type = allocationPinned;
  properties.location = {locationDevice, gpu.device};
  // NCCL registers memory with other processes and with network cards only if it was made for that.
  properties.requestedHandleTypes = gpu.fileDescriptors ? handleFileDescriptor : 0;
  properties.gpuDirectRDMACapable = gpu.directAccess;
  size_t granularity = 0;
  if (int error = driver->memGetAllocationGranularity(&granularity, &properties, granularityRecommended))
    return driverStatus(*driver, error, "cannot ask for the granularity of memory");
  size_t rounded = (wanted + granularity - 1) / granularity * granularity;
  if (int error = driver->memAddressReserve(&base, rounded, 0, 0, 0))
    return driverStatus(*driver, error, "cannot reserve addresses");
  reserved = rounded;
  if (int error = driver->memCreate(&handle, rounded, &properties, 0))
    return noMemory(gpu, error, static_cast<int64_t>(wanted));
  if (int error = driver->memMap(base, rounded, 0, handle, 0)) return driverStatus(*driver, error, "cannot map memory");
  mapped = rounded;
  AccessDescription access{{locationDevice, gpu.device}, accessReadWrite};
  CLEAVE_RETURN_IF_ERROR(
      driverStatus(*driver, driver->memSetAccess(base, rounded, &access, 1), "cannot give access to memory"));
  for (const Gpu *peer : gpu.peers) {
    access.location.id = peer->device;
    if (int error = driver->memSetAccess(base, rounded, &access, 1))
      return driverStatus(*driver, error,
                          fmt::format("GPU {} cannot reach the memory of GPU {}: start one process a GPU (torchrun, "
                                      "mpirun, srun)",
                                      peer->ordinal, gpu.ordinal)
                              .c_str());
  }
  return Status::ok();
}

Status DeviceMemory::allocate(const Gpu &gpu, int64_t bytes, Stream stream) {
  driver = &gpu.driver;
  context = gpu.context;
  size = bytes;
  CLEAVE_RETURN_IF_ERROR(gpu.enter());
  auto wanted = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  if (gpu.virtualMemory)
    CLEAVE_RETURN_IF_ERROR(map(gpu, wanted));
  else if (int error = driver->memAlloc(&base, wanted))
    return noMemory(gpu, error, bytes);
  return driverStatus(*driver, driver->memsetD8Async(base, 0, wanted, stream), "cannot zero memory");
}

PinnedMemory::~PinnedMemory() {
  if (!base) return;
  driver->ctxSetCurrent(context);
  driver->memFreeHost(base);
}

Status PinnedMemory::allocate(const Gpu &gpu, int64_t bytes) {
  driver = &gpu.driver;
  context = gpu.context;
  size = bytes;
  CLEAVE_RETURN_IF_ERROR(gpu.enter());
  if (int error = driver->memHostAlloc(&base, static_cast<size_t>(std::max<int64_t>(bytes, 1)), hostPortable))
    return driverStatus(*driver, error, fmt::format("cannot pin {} bytes of the host's memory", bytes).c_str());
  return Status::ok();
}

} // namespace cleave::runtime::cuda
