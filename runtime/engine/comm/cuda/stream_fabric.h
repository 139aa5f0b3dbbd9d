// Collectives and transfers between GPUs, enqueued on the streams of the devices' lanes. Words of the processes on
// the host (barriers, the end of a run) go over the fabric with which they were started.
//
//   std::unique_ptr<StreamFabric> fabric = ...;      // local_fabric.h or nccl_fabric.h
//   fabric->beginRun(7);
//   Result<bool> enqueued = command->issue();        // of every device of this process, until true
#pragma once
#include "runtime/engine/comm/communicator.h"
#include "runtime/engine/device/cuda/cuda_device.h"
#include <cstdio>
#include <cstdlib>

namespace cleave::runtime::cuda {

using CudaDevices = std::map<int64_t, CudaDevice *>; // of this process, by id in the mesh

class StreamFabric : public Fabric {
public:
  StreamFabric(dist::Mesh mesh, std::unique_ptr<Fabric> host, CudaDevices devices)
      : mesh(std::move(mesh)), host(std::move(host)), devices(std::move(devices)) {}
  std::vector<int64_t> localDevices() const override { return host->localDevices(); }
  void attach(int64_t, std::byte *) override {}
  ControlPlane &control() override { return host->control(); }
  Result<ControlPlane *> openControl(TimeLimit limit) override { return host->openControl(limit); }
  Result<std::vector<std::string>> exchange(std::span<const Blob> blobs, std::span<const int> from,
                                            TimeLimit limit) override {
    return host->exchange(blobs, from, limit);
  }
  std::vector<std::string> hosts() const override { return host->hosts(); }
  // The others are told first: what is stuck here may wait until they end, too.
  void abort(const std::string &message, int exitStatus) override {
    flag.raise();
    host->abort(message, exitStatus);
    if (stop()) return;
    std::fprintf(stderr, "cleave: error: %s\n", message.c_str()); // nobody else can: this process ends here
    std::fflush(stderr);
    std::_Exit(exitStatus);
  }
  int64_t currentRun() const { return run; }
  // Before the commands of a run are issued; its events are only waited for within it.
  virtual Status beginRun(int64_t number) {
    run = number;
    return Status::ok();
  }
  // The run ends before all its commands are issued: the next one begins as this one did.
  virtual void giveUpRun() {}
  // When all commands of the run are enqueued: `last` goes on after what the fabric does beside the lanes.
  virtual Status endRun(Stream) { return Status::ok(); }
  // Whether something has failed that only the communicators know of.
  virtual Status health() { return Status::ok(); }
  // May a step be a graph, where steps run into each other, or the first ones are traced (as many as fit a rank's
  // trace)?
  virtual bool takesGraphs(bool /*runsOn*/, bool /*isTraced*/) const { return true; }

  // Whether an exchange is a kernel that runs until the other ranks have come.
  virtual bool waitsInKernels() const { return false; }

protected:
  virtual bool stop() { return true; } // ends what is enqueued and stuck; false where it does not end
  dist::Mesh mesh;
  std::unique_ptr<Fabric> host;
  CudaDevices devices;
  int64_t run = 0;
};

} // namespace cleave::runtime::cuda
