// Ranks of one process, any number of them on a GPU: members of a collective wait for each other's events, then read
// each other's arenas by copies and by the reduction kernels. Sums are made in the order of the members, so the bits
// are those of the CPU's LocalFabric.
#pragma once
#include "runtime/engine/comm/cuda/message_buffers.h"

namespace cleave::runtime::cuda {

class LocalCollective;

class LocalStreamFabric final : public StreamFabric {
public:
  LocalStreamFabric(dist::Mesh mesh, std::unique_ptr<Fabric> host, CudaDevices devices);
  ~LocalStreamFabric() override;
  Result<Prepared> prepare(int64_t device, int lane, const plan::Collective &collective) override;
  Status openRoutes(int64_t device, std::span<const MessageRoute> routes) override;
  Result<Prepared> prepareTransfer(int64_t device, int lane, const plan::Transfer &transfer) override;
  int64_t messageBytes(int64_t device) const override;
  Status beginRun(int64_t number) override;
  void giveUpRun() override;

  // Where the members of a group meet, one collective at a time.
  struct Meeting {
    std::vector<LocalCollective *> present; // by place in the group; null: not yet
    size_t arrived = 0;
    int64_t run = 0; // in which they did
  };
  // Where on the device's GPU these addresses lie as a table for a kernel.
  Result<Address> table(int64_t device, const std::vector<Address> &addresses);

private:
  Status needReduction(Gpu &gpu, const std::string &name);
  struct Tables {
    std::map<std::vector<Address>, Address> known;
    std::deque<DeviceMemory> chunks;
    int64_t used = 0; // bytes of the last chunk
  };
  std::map<std::pair<std::vector<int64_t>, int>, Meeting> meetings;   // by members and lane
  std::map<std::tuple<int64_t, int64_t, int>, MessageBuffers> routes; // by sender, receiver and channel
  std::map<int64_t, Tables> tables;                                   // by device
  std::map<const Gpu *, Module> modules;
  std::map<const Gpu *, std::map<std::string, Function>> reductions;
};

} // namespace cleave::runtime::cuda
