// All devices are threads of one process: members of a collective read each other's arenas between two barriers, a
// message is copied into its route's buffer and out of it.
#pragma once
#include "runtime/engine/comm/communicator.h"
#include "runtime/engine/comm/message_ring.h"
#include <deque>
#include <memory>
#include <mutex>

namespace cleave::runtime {

class LocalFabric final : public Fabric {
public:
  explicit LocalFabric(dist::Mesh mesh);
  std::vector<int64_t> localDevices() const override;
  void attach(int64_t device, std::byte *arena) override { arenas[static_cast<size_t>(device)] = arena; }
  Result<Prepared> prepare(int64_t device, int lane, const plan::Collective &collective) override;
  Status openRoutes(int64_t device, std::span<const MessageRoute> routes) override;
  Result<Prepared> prepareTransfer(int64_t device, int lane, const plan::Transfer &transfer) override;
  int64_t messageBytes(int64_t device) const override;
  void abort(const std::string &, int) override;
  WakeSignal *signal(int64_t device) override { return &signals[static_cast<size_t>(device)]; }

  // Where the members of a group's collectives meet, one collective at a time.
  struct Meeting {
    explicit Meeting(int members) : barrier(members), present(static_cast<size_t>(members)) {}
    Barrier barrier;
    std::vector<const PreparedCommand *> present; // the members' ends of the collective, written before they meet
  };

private:
  dist::Mesh mesh;
  std::vector<std::byte *> arenas;
  std::deque<WakeSignal> signals;                                                    // of the devices
  std::mutex lock;                                                                   // over channels, while preparing
  std::map<std::pair<std::vector<int64_t>, int>, std::unique_ptr<Meeting>> channels; // by members and lane
  // By sender, receiver and channel.
  std::map<std::tuple<int64_t, int64_t, int>, std::unique_ptr<MessageRing>> routes;
};

} // namespace cleave::runtime
