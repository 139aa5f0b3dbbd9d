// Ranks that meet over TCP. A pair has a connection for each lane on which it needs one, over shared memory where both
// are on one host. A rank that dies closes its sockets, which its peers see at once.
#include "runtime/engine/comm/socket_link.h"
#include "runtime/engine/comm/stream_endpoint.h"
#include "runtime/engine/comm/tcp/address.h"
#include "runtime/engine/comm/tcp/rendezvous.h"
#include "runtime/engine/comm/tcp/tcp_health_link.h"
#include "runtime/engine/comm/transport.h"
#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <set>

namespace cleave::runtime {
namespace {

class TcpTransport final : public Transport {
public:
  TcpTransport(const Launch &launch, const Network &network, const std::string &plan, const AbortFlag &abort)
      : network(network), abortFlag(abort), rendezvous(launch, this->network, plan) {}
  Status meet();
  int rank() const override { return rendezvous.rank(); }
  int size() const override { return rendezvous.size(); }
  Endpoint &endpoint(Lane lane) override { return *endpoints[lane]; }
  ControlPlane &control() override { return *controlPlane; }
  void need(Lane lane, int peer) override {
    if (peer != rank() && !endpoints[lane]->isLinked(peer)) needed.emplace(lane, peer);
  }
  Status connect(TimeLimit limit) override;
  HealthLink &healthLink() override { return *watch; }
  int lostPeer() override {
    for (int lane = 0; lane < healthLane; ++lane)
      if (int lost = endpoints[static_cast<size_t>(lane)]->lostPeer(); lost >= 0) return lost;
    return -1;
  }
  std::vector<std::string> hosts() const override { return rendezvous.hosts(); }
  void abort(const std::string &, int) override { // the watch line may still say why
    for (Lane lane : {computeLane, communicationLane, transferLane, exchangeLane, controlLane})
      endpoints[lane]->shutdown(); // a snapshot may still be ended
  }

private:
  const Network network;
  const AbortFlag &abortFlag;
  tcp::Rendezvous rendezvous;
  std::atomic<int64_t> moved{0}; // bytes, by all lanes
  std::array<std::unique_ptr<StreamEndpoint>, healthLane> endpoints;
  std::unique_ptr<ControlPlane> controlPlane;
  std::unique_ptr<tcp::TcpHealthLink> watch;
  std::set<std::pair<Lane, int>> needed;
};

Status TcpTransport::meet() {
  const Status met = rendezvous.meet();
  if (!met && !rendezvous.hasRun()) return met;
  for (int lane = 0; lane < healthLane; ++lane)
    endpoints[static_cast<size_t>(lane)] = std::make_unique<StreamEndpoint>(
        StreamEndpoint::Place{rank(), size(), lane, rendezvous.run(), lane == transferLane}, moved);
  StreamEndpoint &tree = *endpoints[controlLane];
  std::vector<int> sockets(static_cast<size_t>(size()), -1);
  for (int peer : neighboursOf(rank(), size())) {
    if (const int socket = rendezvous.take({controlLane, peer}); socket >= 0)
      tree.setLink(peer, std::make_unique<SocketLink>(socket));
    sockets[static_cast<size_t>(peer)] = rendezvous.take({healthLane, peer});
  }
  watch = std::make_unique<tcp::TcpHealthLink>(rank(), std::move(sockets), moved);
  controlPlane = std::make_unique<ControlPlane>(tree, abortFlag);
  if (met) return rendezvous.confirm(tree, *controlPlane);
  (void)controlPlane->barrier({1, nullptr}); // fails, and tells the others which rank is missing
  return met;
}

Status TcpTransport::connect(TimeLimit limit) {
  std::vector<tcp::Rendezvous::Pair> pairs;
  for (auto [lane, peer] : needed) pairs.push_back({lane, peer});
  CLEAVE_RETURN_IF_ERROR(rendezvous.connect(pairs, *endpoints[controlLane], *controlPlane, limit));
  std::array<std::vector<int>, healthLane> sharing; // peers that may share memory
  for (auto [lane, peer] : needed) {
    endpoints[lane]->setLink(peer, std::make_unique<SocketLink>(rendezvous.take({lane, peer})));
    if (lane <= transferLane && rendezvous.isBeside(peer)) sharing[lane].push_back(peer);
  }
  needed.clear();
  std::string obstacle;
  for (int lane = 0; lane < healthLane; ++lane) {
    CLEAVE_ASSIGN_OR_RETURN(std::string met, endpoints[static_cast<size_t>(lane)]->shareMemory(
                                                 sharing[static_cast<size_t>(lane)], Deadline(abortFlag, limit)));
    if (!met.empty()) obstacle = std::move(met);
  }
  if (!obstacle.empty())
    fmt::print(stderr, "cleave: rank {} sends over TCP to ranks of its own host, as they share no memory: {}\n", rank(),
               obstacle);
  return Status::ok();
}

} // namespace

Result<std::unique_ptr<Transport>> openTcpTransport(const Launch &launch, const Network &network,
                                                    const std::string &plan, const AbortFlag &abort) {
  auto transport = std::make_unique<TcpTransport>(launch, network, plan, abort);
  CLEAVE_RETURN_IF_ERROR(transport->meet());
  return std::unique_ptr<Transport>(std::move(transport));
}

} // namespace cleave::runtime
