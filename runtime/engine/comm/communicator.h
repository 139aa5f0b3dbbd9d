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
#include "runtime/base/threads/wait.h"
#include "runtime/base/time_limits.h"
#include "runtime/engine/comm/control_plane.h"
#include "runtime/engine/comm/health_link.h"
#include "runtime/engine/device/device.h"
#include "runtime/plan/collective_parts.h"
#include "runtime/plan/message_routes.h"
#include <map>
#include <span>
#include <string>
#include <vector>

namespace cleave::runtime {

struct Blob {
  int to = 0;
  std::string bytes;
};

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
  // reached within the limit.
  virtual Status connect(TimeLimit) { return Status::ok(); }
  // What the processes do together beside their steps, on one thread at a time.
  virtual ControlPlane &control() { return alone; }
  // All processes: another one, for a thread of its own; it goes on for a little when the run is aborted. It lasts as
  // long as the fabric.
  virtual Result<ControlPlane *> openControl(TimeLimit) { return &alone; }
  // All processes: sends blobs to others and receives one from each of `from`, in that order; the others mean the same.
  virtual Result<std::vector<std::string>> exchange(std::span<const Blob>, std::span<const int> from, TimeLimit) {
    return std::vector<std::string>(from.size());
  }
  // Where the processes are, by rank, as others reach them; empty: there is one, or MPI knows.
  virtual std::vector<std::string> hosts() const { return {}; }
  // Ends the run everywhere. Waits then return false; a fabric of several processes ends the others too.
  virtual void abort(const std::string &message, int exitStatus) = 0;
  // To the other processes; null: there are none, or they are watched otherwise.
  virtual HealthLink *healthLink() { return nullptr; }
  // A process of the run that is seen to have ended, without waiting; -1: none.
  virtual int64_t lostProcess() { return -1; }
  // Rings when what a command of this device waited for (issue() gave false) may have happened: one thread then issues
  // the commands of all lanes. Null: commands wait as they run, and each lane needs a thread.
  virtual WakeSignal *signal(int64_t) { return nullptr; }
  AbortFlag &abortFlag() { return flag; }

protected:
  AbortFlag flag;
  ControlPlane alone;
};

} // namespace cleave::runtime
