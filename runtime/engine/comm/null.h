// Between devices that execute nothing (device/null): collectives are checked, and nobody meets. Devices of one program
// do the same work, so one of each is here, however large the mesh is.
#pragma once
#include "runtime/engine/comm/communicator.h"

namespace cleave::runtime {

class NullFabric final : public Fabric {
public:
  NullFabric(const plan::Plan &plan, dist::Mesh mesh);
  std::vector<int64_t> localDevices() const override;
  void attach(int64_t, std::byte *) override {}
  Result<Prepared> prepare(int64_t device, int lane, const plan::Collective &collective) override;
  Status openRoutes(int64_t, std::span<const MessageRoute>) override { return Status::ok(); }
  Result<Prepared> prepareTransfer(int64_t device, int lane, const plan::Transfer &transfer) override;
  int64_t messageBytes(int64_t) const override { return 0; }
  void abort(const std::string &, int) override;
  WakeSignal *signal(int64_t device) override { return &signals.at(device); }

private:
  dist::Mesh mesh;
  std::map<int64_t, WakeSignal> signals; // of the first device of each program
};

} // namespace cleave::runtime
