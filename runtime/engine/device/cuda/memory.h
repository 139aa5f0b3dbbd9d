// Memory of a GPU and pinned memory of the host, freed when the object goes.
//
//   DeviceMemory arena;  Status s = arena.allocate(gpu, bytes);   // zeroed, in address space of its own
//   PinnedMemory staging; Status s = staging.allocate(driver, bytes);
#pragma once
#include "runtime/base/status.h"
#include "runtime/engine/device/cuda/api/driver.h"

namespace cleave::runtime::cuda {

class Gpu;

// By the virtual memory interface where the GPU has it, which asks for exactly so many bytes and leaves no fragments,
// else by cuMemAlloc. Zeroed on the stream given.
class DeviceMemory {
public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory &) = delete;
  ~DeviceMemory();
  // Error: the memory that is free does not suffice; the message says how much is.
  Status allocate(const Gpu &gpu, int64_t bytes, Stream stream);
  Address address() const { return base; }
  int64_t bytes() const { return size; }

private:
  Status map(const Gpu &gpu, size_t wanted);
  const Driver *driver = nullptr;
  Context context = nullptr;
  Address base = 0;
  int64_t size = 0;
  size_t reserved = 0, mapped = 0; // of the virtual memory interface; 0: cuMemAlloc
  unsigned long long handle = 0;
};

class PinnedMemory {
public:
  PinnedMemory() = default;
  PinnedMemory(const PinnedMemory &) = delete;
  ~PinnedMemory();
  Status allocate(const Gpu &gpu, int64_t bytes);
  std::byte *data() const { return static_cast<std::byte *>(base); }
  // As copies and kernels name it.
  Address address() const { return reinterpret_cast<Address>(base); }
  int64_t bytes() const { return size; }

private:
  const Driver *driver = nullptr;
  Context context = nullptr;
  void *base = nullptr;
  int64_t size = 0;
};

} // namespace cleave::runtime::cuda
