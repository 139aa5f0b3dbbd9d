// One rank per process: collectives as messages over a Transport.
//
// Every member reduces its own piece in the order of the members, as LocalFabric does, so that the bits are the same:
//   all-reduce      pieces to their owners, reduce, pieces back to all; in batches that stay in the cache
//   reduce-scatter  pieces to their owners, reduce; the same
//   all-gather, all-to-all, broadcast, shift   pieces to those who need them
#pragma once
#include "runtime/engine/comm/communicator.h"
#include "runtime/engine/comm/transfer_thread.h"
#include "runtime/engine/comm/transport.h"
#include <array>
#include <memory>

namespace cleave::runtime {

class ProcessFabric final : public Fabric {
public:
  explicit ProcessFabric(dist::Mesh mesh) : mesh(std::move(mesh)) {}
  // The transport's ranks are the mesh's devices; its abort flag is abortFlag(). Once, before all else.
  void open(std::unique_ptr<Transport> opened);
  std::vector<int64_t> localDevices() const override { return {transport->rank()}; }
  void attach(int64_t, std::byte *base) override { arena = base; }
  Result<Prepared> prepare(int64_t device, int lane, const plan::Collective &collective) override;
  Status openRoutes(int64_t device, std::span<const MessageRoute> routes) override;
  Result<Prepared> prepareTransfer(int64_t device, int lane, const plan::Transfer &transfer) override;
  int64_t messageBytes(int64_t device) const override;
  Status connect(TimeLimit limit) override;
  ControlPlane &control() override { return transport->control(); }
  Result<ControlPlane *> openControl(TimeLimit limit) override;
  Result<std::vector<std::string>> exchange(std::span<const Blob> blobs, std::span<const int> from,
                                            TimeLimit limit) override;
  std::vector<std::string> hosts() const override { return transport->hosts(); }
  void abort(const std::string &message, int exitStatus) override;
  HealthLink *healthLink() override { return &transport->healthLink(); }
  int64_t lostProcess() override { return transport->lostPeer(); }

private:
  struct Staging {
    std::unique_ptr<std::byte[]> memory;
    int64_t bytes;
  };
  std::string nameOf(uint32_t tag) const;
  std::byte *stagingOf(int lane, int64_t bytes);

  const dist::Mesh mesh;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<TransferThread> transfers;
  std::unique_ptr<ControlPlane> second;
  std::byte *arena = nullptr;
  std::array<std::vector<Staging>, 2> staging; // by lane: those that commands point to
};

} // namespace cleave::runtime
