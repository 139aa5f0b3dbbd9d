// Collectives and transfers between the devices of a mesh. A Fabric connects the devices that this process runs with
// all others; each group of a collective ("devices that differ only along these axes") and each lane has a
// channel of its own, so that what one stream does never mixes with another.
//
//   LocalFabric fabric(mesh);                                   // all devices are threads of this process
//   fabric.attach(device, arena);                               // every device, before the first prepare
//   Result<Prepared> sum = fabric.prepare(device, 1, collective);
//   Status s = (*sum)->run();                                   // on the thread of the lane
//   fabric.openRoutes(device, routesOf(plan, mesh, device));    // every device, before the first transfer
//   Result<Prepared> send = fabric.prepareTransfer(device, 1, transfer);
//
// Sums are made in the order of the group's members, element by element, whatever the timing and the transport: the
// bits of a run are the same in one process and under MPI.
#pragma once
#include "runtime/comm/watch_line.h"
#include "runtime/device/device.h"
#include "runtime/plan/collective_parts.h"
#include "runtime/plan/message_routes.h"
#include "runtime/threads/wait.h"
#include <map>
#include <span>
#include <string>
#include <vector>

namespace cleave::runtime {

struct Blob {
  int to = 0;
  std::string bytes;
};

// What processes prepare before the first step, and wait for each other's, takes no longer: choosing among libraries'
// algorithms, reading what is resumed.
constexpr double preparationSeconds = 1800;

class Fabric {
public:
  virtual ~Fabric() = default;
  // Devices of the mesh that this process runs.
  virtual std::vector<int64_t> localDevices() const = 0;
  virtual void attach(int64_t device, std::byte *arena) = 0;
  // `lane`: see plan/routine.h; what lanes do never meets.
  virtual Result<Prepared> prepare(int64_t device, int lane, const plan::Collective &collective) = 0;
  // Message buffers of a device's transfers. A send copies into one and waits only when all of its route are full.
  // Called for every device before the first prepareTransfer.
  virtual Status openRoutes(int64_t device, std::span<const MessageRoute> routes) = 0;
  virtual Result<Prepared> prepareTransfer(int64_t device, int lane, const plan::Transfer &transfer) = 0;
  virtual int64_t messageBytes(int64_t device) const = 0; // allocated for the device's routes
  // All processes, when every command is prepared: connects those that send to each other. Error: a process cannot be
  // reached within so many seconds.
  virtual Status connect(double) { return Status::ok(); }
  // What follows is called by all processes in the same order. Errors are those of all of them: another process failed,
  // or does not come within so many seconds.
  virtual Status barrier(double seconds) = 0;
  // Whether all processes hold the same number (a digest of the plan, of options).
  virtual Result<bool> allEqual(uint64_t digest, double seconds) = 0;
  virtual Result<uint64_t> allReduceMax(uint64_t mine, double) { return mine; }
  // The bytes of the first process, on all of them.
  virtual Status broadcast(std::span<std::byte> bytes, double seconds) = 0;
  // Each process' bytes, on all of them.
  virtual Result<std::vector<std::string>> allGather(const std::string &mine, double) { return std::vector{mine}; }
  // Sends blobs to other processes and receives one from each of `from`, in that order; the others mean the same.
  virtual Result<std::vector<std::string>> exchange(std::span<const Blob>, std::span<const int> from, double) {
    return std::vector<std::string>(from.size());
  }
  // Where the processes are, by rank, as others reach them; empty: there is one, or MPI knows.
  virtual std::vector<std::string> hosts() const { return {}; }
  // Ends the run everywhere. Waits then return false; a fabric of several processes ends the others too.
  virtual void abort(const std::string &message, int exitStatus) = 0;
  // To the other processes; null: there are none, or they are watched otherwise.
  virtual WatchLine *watchLine() { return nullptr; }
  // A process of the run that is seen to have ended, without waiting; -1: none.
  virtual int64_t lostProcess() { return -1; }
  // Rings when what a command of this device waited for (issue() gave false) may have happened: one thread then issues
  // the commands of all lanes. Null: commands wait as they run, and each lane needs a thread.
  virtual Bell *bell(int64_t) { return nullptr; }
  AbortFlag &abortFlag() { return flag; }

protected:
  AbortFlag flag;
};

} // namespace cleave::runtime
