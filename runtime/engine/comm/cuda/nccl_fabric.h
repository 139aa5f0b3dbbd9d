// NCCL between processes, one rank and one GPU each: a communicator of the whole mesh, and split from it one for each
// set of axes and lane, and one for each pair of devices and channel that messages go along. The first process's
// identifier reaches the others over the host's fabric.
//
//   all-gather and reduce-scatter along an inner dimension, all-to-all: packed into scratch, exchanged, unpacked
//   messages to itself: as within a process (message_buffers.h)
//   sends: into a message buffer, then on a stream of their own, since NCCL's send waits for its receiver on the GPU
#pragma once
#include "runtime/engine/comm/cuda/message_buffers.h"
#include <chrono>
#include <deque>
#include <optional>

namespace cleave::runtime::cuda {

class NcclFabric final : public StreamFabric {
public:
  using StreamFabric::StreamFabric;
  ~NcclFabric() override;
  // Connects the ranks: every process does so, with the same plan. Error: NCCL is missing, or says why.
  Status open(const plan::Plan &plan, TimeLimit limit);
  Result<Prepared> prepare(int64_t device, int lane, const plan::Collective &collective) override;
  Status openRoutes(int64_t device, std::span<const MessageRoute> routes) override;
  Result<Prepared> prepareTransfer(int64_t device, int lane, const plan::Transfer &transfer) override;
  int64_t messageBytes(int64_t device) const override;
  Status endRun(Stream last) override;
  Status health() override;

  struct Route {
    NcclComm comm = nullptr; // of the sender (0) and the receiver (1)
    // The sender's:
    DeviceMemory memory; // message buffers
    int64_t stride = 0, sent = 0;
    Stream stream = nullptr;
    std::deque<StreamEvent> written, gone; // by buffer
    StreamEvent idle;
  };
  const Nccl &api() const { return *nccl; }
  CudaDevice &device() const { return *devices.begin()->second; }
  // Scratch that all exchanges of a lane share, known when all are prepared.
  void needScratch(int lane, int64_t bytes) {
    scratchBytes[static_cast<size_t>(lane)] = std::max(scratchBytes[static_cast<size_t>(lane)], bytes);
  }
  Address scratch(int lane) const { return scratches[static_cast<size_t>(lane)].address(); }
  Status beginRun(int64_t number) override;
  void giveUpRun() override;
  // Both ends of an exchange must be captured, or neither.
  bool waitsInKernels() const override { return true; }
  bool takesGraphs(bool runsOn, bool isTraced) const override { return !runsOn && !isTraced; }

private:
  bool stop() override;
  Result<NcclComm> split(int color, int64_t key, const std::string &what);
  Status connectPair(NcclComm comm, Stream stream, int self, const std::vector<int> &to, const std::vector<int> &from);
  const Nccl *nccl = nullptr;
  NcclComm world = nullptr;
  std::vector<NcclComm> made;                                          // all, the world first
  std::map<std::pair<std::vector<std::string>, int>, NcclComm> groups; // by axes and lane
  std::map<std::tuple<int64_t, int64_t, int>, Route> routes;           // by sender, receiver, channel
  std::map<int, MessageBuffers> toItself;                              // by channel
  std::optional<std::chrono::steady_clock::time_point> lostSince;      // a process of the run
  std::array<int64_t, numLanes> scratchBytes{};
  std::array<DeviceMemory, numLanes> scratches;
  DeviceMemory greetings; // what ranks send each other to connect
};

} // namespace cleave::runtime::cuda
