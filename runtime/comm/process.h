// One rank a process: collectives as messages over a Transport.
//
// Every member reduces its own piece in the order of the members, as LocalFabric does, so that the bits are the same:
//   all-reduce      pieces to their owners, reduce, pieces back to all
//   reduce-scatter  pieces to their owners, reduce
//   all-gather, all-to-all, broadcast, shift   pieces to those who need them
#pragma once
#include "runtime/comm/communicator.h"
#include "runtime/comm/courier.h"
#include "runtime/comm/transport.h"
#include <memory>

namespace cleave::runtime {

class ProcessFabric final : public Fabric {
public:
  // The transport's ranks are the mesh's devices.
  ProcessFabric(dist::Mesh mesh, std::unique_ptr<Transport> transport)
      : mesh(std::move(mesh)), transport(std::move(transport)), courier(*this->transport) {}
  std::vector<int64_t> localDevices() const override { return {transport->rank()}; }
  void attach(int64_t, std::byte *base) override { arena = base; }
  Result<Prepared> prepare(int64_t device, int lane, const plan::Collective &collective) override;
  Status openRoutes(int64_t device, std::span<const MessageRoute> routes) override;
  Result<Prepared> prepareTransfer(int64_t device, int lane, const plan::Transfer &transfer) override;
  int64_t messageBytes(int64_t device) const override;
  Status barrier(double seconds) override;
  Result<bool> agree(uint64_t digest, double seconds) override;
  Result<uint64_t> largest(uint64_t mine, double seconds) override;
  Result<std::vector<std::string>> swap(std::span<const Letter> letters, std::span<const int> from,
                                        double seconds) override;
  std::vector<std::string> hosts() const override { return transport->hosts(); }
  Status share(std::span<std::byte> bytes, double seconds) override;
  void abort(const std::string &message, int exitStatus) override;
  WatchLine *watchLine() override { return &transport->watchLine(); }
  int64_t lostProcess() override { return transport->lostPeer(); }

private:
  Status silent(const Status &failure, const Patience &patience, double seconds) const;

  dist::Mesh mesh;
  std::unique_ptr<Transport> transport;
  Courier courier; // of transfers
  std::byte *arena = nullptr;
};

} // namespace cleave::runtime
