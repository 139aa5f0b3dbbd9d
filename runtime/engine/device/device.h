// A Device executes a plan's commands, one per rank: CPU, null, or a GPU (device/cuda).
//
// A device is prepared once and then only run: `prepare` checks a command, resolves its addresses, creates primitives
// and counts scratch; `run` of the result does the work, without allocation.
//
//   Result<std::unique_ptr<Device>> device = openCpuDevice(plan, mesh, 0, {.threads = 2});
//   (*device)->allocate(program.arena_bytes());
//   Result<std::unique_ptr<PreparedCommand>> matmul = (*device)->prepare(command);
//   Status s = (*matmul)->run();
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/sharding/mesh.h"
#include "runtime/base/status.h"
#include <cstddef>
#include <memory>
#include <string>

namespace cleave::runtime {

class PreparedCommand {
public:
  virtual ~PreparedCommand() = default;
  // Does the work; on a GPU: puts it on the command's stream.
  virtual Status run() = 0;
  // For a thread that has more than this command to do (those of all devices of a process, on GPUs; of all lanes of a
  // device, in one process on a CPU): run(), as far as it need not wait for what another device does. False: not yet
  // done, call again after the others.
  virtual Result<bool> issue() {
    if (Status status = run(); !status) return status;
    return true;
  }
  // A warning for the user of how it runs; empty: none.
  virtual std::string warning() const { return {}; }
};
using Prepared = std::unique_ptr<PreparedCommand>;

class Device {
public:
  virtual ~Device() = default;
  // One allocation of zeroed bytes; the program's buffers are offsets into it.
  virtual Status allocate(int64_t bytes) = 0;
  // Zeroed bytes of the host's memory beside it, pinned where the device is a GPU. Places (plan/routine.h) from
  // hostMemory on are in them.
  virtual Status allocateHost(int64_t bytes) = 0;
  // Base address of the arena as kernels see it; null on a device whose memory the host cannot address.
  virtual std::byte *arena() = 0;
  virtual std::byte *host() = 0; // null: a device without memory
  // Commands except collectives and transfers, which are the communicator's.
  virtual Result<Prepared> prepare(const plan::Command &command) = 0;
  // Called once after the last prepare: allocates the scratch that the prepared commands share.
  virtual Status finishPreparing() = 0;
  virtual Status write(int64_t place, const void *data, int64_t bytes) = 0;
  virtual Status read(int64_t place, void *data, int64_t bytes) const = 0;
  // Arena and scratch, bytes; the host's memory is no part of it.
  virtual int64_t allocatedBytes() const = 0;
  // Called on a thread before it runs this device's commands.
  virtual void enterThread() = 0;
};

} // namespace cleave::runtime
