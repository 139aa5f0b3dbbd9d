// One rank's share of a GPU as a device: an arena, a stream for each lane (plan/routine.h), the
// plan's commands as launches and library calls. Running a prepared command puts it on its lane's stream and returns;
// the executor's StreamEngine orders the streams by events.
//
//   CudaDevice device(gpu, mesh, 0);
//   device.allocate(program.arena_bytes());
//   Result<Prepared> matmul = device.prepare(command);
//   Status s = (*matmul)->run();                          // enqueued
//   s = device.synchronize();
#pragma once
#include "runtime/engine/device/cuda/gpu.h"
#include "runtime/engine/device/cuda/memory.h"
#include "runtime/engine/device/device.h"
#include "runtime/plan/routine.h"
#include <algorithm>
#include <array>

namespace cleave::runtime::cuda {

class CudaDevice final : public Device {
public:
  CudaDevice(std::shared_ptr<Gpu> gpu, const dist::Mesh &mesh, int64_t device)
      : shared(std::move(gpu)), mesh(mesh), id(device) {}
  ~CudaDevice() override;

  Status allocate(int64_t bytes) override;
  Status allocateHost(int64_t bytes) override;
  std::byte *arena() override { return nullptr; }
  std::byte *host() override { return pinned.data(); }
  Result<Prepared> prepare(const plan::Command &command) override;
  Status finishPreparing() override;
  // Memory that inputs pass through on their way to the arena: of two steps, as the next one's come while one runs.
  Status allocateStages(int64_t bytes);
  // Through pinned memory; return when the bytes are there.
  Status write(int64_t place, const void *data, int64_t bytes) override;
  Status read(int64_t place, void *data, int64_t bytes) const override;
  int64_t allocatedBytes() const override {
    return memory.bytes() + workspace.bytes() + stages[0].memory.bytes() + stages[1].memory.bytes();
  }
  void enterThread() override { (void)shared->enter(); }

  Gpu &gpu() const { return *shared; }
  Stream copies() const { return copyStream; }    // what the host reads and writes, whatever the lanes wait for
  Stream uploads() const { return uploadStream; } // inputs to the stages
  struct Stage {
    PinnedMemory host;
    DeviceMemory memory; // as much
  };
  const Stage &stage(int64_t turn) const { return stages[static_cast<size_t>(turn) % stages.size()]; }
  Stream stream(int lane) const { return streams[static_cast<size_t>(lane)]; }
  Address address(int64_t offset) const { return memory.address() + static_cast<Address>(offset); }
  Address addressOf(int64_t place) const { // plan/routine.h
    return place >= hostMemory ? pinned.address() + static_cast<Address>(place - hostMemory) : address(place);
  }
  Status synchronize() const; // all its lanes
  // After an error: waits until nothing that is enqueued runs any more, ten seconds at most.
  void drain() const;
  // As write(), to any memory of the GPU.
  Status upload(Address target, const void *data, int64_t bytes) {
    return transfer(target, const_cast<void *>(data), bytes, true);
  }

  // For builders of commands.
  const dist::Mesh &meshOf() const { return mesh; }
  int64_t deviceId() const { return id; }
  Address at(const plan::Buffer &buffer) const {
    return buffer.on_host() ? pinned.address() + static_cast<Address>(buffer.offset()) : address(buffer.offset());
  }
  // Bytes of scratch a library call wants; its address is known when all commands are prepared.
  void needWorkspace(size_t bytes) { workspaceBytes = std::max(workspaceBytes, bytes); }
  const DeviceMemory &workspaceMemory() const { return workspace; }

private:
  Status transfer(Address device, void *host, int64_t bytes, bool toDevice) const;
  Status inside(int64_t offset, int64_t bytes) const;
  // Null: the place is not in the host's memory.
  std::byte *onHost(int64_t place, int64_t bytes) const {
    bool is = place >= hostMemory && bytes >= 0 && place - hostMemory <= pinned.bytes() - bytes;
    return is ? pinned.data() + (place - hostMemory) : nullptr;
  }

  std::shared_ptr<Gpu> shared;
  dist::Mesh mesh;
  int64_t id;
  std::array<Stream, numLanes> streams{};
  Stream copyStream = nullptr, uploadStream = nullptr;
  DeviceMemory memory, workspace;
  PinnedMemory staging, pinned; // what the host reads and writes passes through; what lies in the host's memory
  std::array<Stage, 2> stages;
  size_t workspaceBytes = 0;
};

// Builders of commands, each in its own file; `lane` is the stream they run on.
Result<Prepared> prepareLaunches(std::vector<const plan::Launch *> launches, CudaDevice &device, int lane);
// Between the arena and the host's memory: one run of bytes.
Result<Prepared> prepareHostCopy(const plan::Copy &command, CudaDevice &device, int lane);
Result<Prepared> prepareContract(const plan::Contract &command, CudaDevice &device, int lane);
Result<Prepared> prepareAttention(const plan::Attention &command, CudaDevice &device, int lane);
Result<Prepared> prepareConvolution(const plan::Convolution &command, CudaDevice &device, int lane);

} // namespace cleave::runtime::cuda
