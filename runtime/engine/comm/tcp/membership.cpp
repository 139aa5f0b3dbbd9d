#include "runtime/engine/comm/tcp/membership.h"
#include "runtime/engine/comm/tcp/acceptor.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <optional>
#include <poll.h>
#include <unistd.h>

namespace cleave::runtime::tcp {
namespace {

using Clock = std::chrono::steady_clock;

class MembershipVote {
public:
  MembershipVote(const Launch &launch, const Network &network, const std::vector<std::string> &hosts, double seconds)
      : launch(launch), network(network), hosts(hosts),
        wait(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))),
        self{launch.rank, launch.size, digestOf("membership vote"), RunId{}} {}
  ~MembershipVote() {
    for (auto [rank, socket] : present) ::close(socket);
  }
  Result<Launch> run();

private:
  Result<std::optional<Launch>> joinAt(int leader);
  Result<Launch> lead();
  Result<Launch> launchOf(const std::vector<int32_t> &ranks, int leader) const;
  void prepare(Acceptor &acceptor);
  std::optional<std::vector<int32_t>> receive(int socket) const;

  const Launch &launch;
  const Network &network;
  const std::vector<std::string> &hosts;
  const Clock::duration wait;
  const Self self;
  std::map<int, int> present; // sockets, by rank
  Clock::time_point last;     // when one came
};

void MembershipVote::prepare(Acceptor &acceptor) {
  acceptor.isTaken = [this](int, int peer) { return peer >= self.size || peer == self.rank; };
  acceptor.portToTell = [](int) -> Result<uint16_t> { return uint16_t{0}; };
  acceptor.onMet = [this](const Met &met) {
    if (auto [at, isNew] = present.try_emplace(met.peer, met.socket); !isNew)
      ::close(std::exchange(at->second, met.socket));
    last = Clock::now();
  };
}

Result<Launch> MembershipVote::launchOf(const std::vector<int32_t> &ranks, int leader) const {
  const auto left = static_cast<int>(ranks.size());
  if (2 * left < launch.size || (2 * left == launch.size && ranks.front() != 0))
    return runError(fmt::format("only {} of {} processes are left, and others may go on without them: start the run "
                                "again with --resume",
                                left, launch.size));
  Launch next = launch;
  next.size = left;
  next.rank = static_cast<int>(std::ranges::find(ranks, launch.rank) - ranks.begin());
  next.host = hosts[static_cast<size_t>(leader)];
  next.port = launch.port + 1;
  next.localSize = std::min(launch.localSize, left);
  return next;
}

Result<Launch> MembershipVote::lead() {
  Acceptor acceptor(network.secret.value_or(RunSecret{}), self);
  prepare(acceptor);
  CLEAVE_ASSIGN_OR_RETURN(std::vector<Address> own, resolve(hosts[static_cast<size_t>(self.rank)], launch.port));
  const int listening = listenAt(own.front());
  if (listening < 0)
    return runError(
        fmt::format("rank {} cannot listen at {}: {}", self.rank, own.front().text(), std::strerror(errno)));
  acceptor.open(listening);
  last = Clock::now();
  while (static_cast<int>(present.size()) + 1 < self.size && Clock::now() < last + wait)
    CLEAVE_RETURN_IF_ERROR(acceptor.turn());
  std::vector<int32_t> ranks{self.rank};
  for (auto [rank, socket] : present) ranks.push_back(rank);
  std::ranges::sort(ranks);
  std::vector<int32_t> message{static_cast<int32_t>(ranks.size())};
  message.insert(message.end(), ranks.begin(), ranks.end());
  for (auto [rank, socket] : present) // into the socket's buffer
    (void)::send(socket, message.data(), message.size() * sizeof(int32_t), MSG_NOSIGNAL);
  return launchOf(ranks, self.rank);
}

// The leader's list; none when it is gone or says nothing.
std::optional<std::vector<int32_t>> MembershipVote::receive(int socket) const {
  std::vector<int32_t> message;
  size_t got = 0, wanted = sizeof(int32_t);
  for (const auto until = Clock::now() + 2 * wait * std::max(1, self.size); Clock::now() < until;) {
    message.resize(wanted / sizeof(int32_t));
    const ssize_t bytes = ::recv(socket, reinterpret_cast<char *>(message.data()) + got, wanted - got, 0);
    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) return std::nullopt;
    if (bytes > 0) got += static_cast<size_t>(bytes);
    if (got == sizeof(int32_t) && wanted == got) {
      if (message[0] < 1 || message[0] > self.size) return std::nullopt;
      wanted += static_cast<size_t>(message[0]) * sizeof(int32_t);
    }
    if (got == wanted && got > sizeof(int32_t)) return std::vector<int32_t>(message.begin() + 1, message.end());
    if (bytes > 0) continue;
    pollfd poll{socket, POLLIN, 0};
    ::poll(&poll, 1, 100);
  }
  return std::nullopt;
}

Result<std::optional<Launch>> MembershipVote::joinAt(int leader) {
  Acceptor acceptor(network.secret.value_or(RunSecret{}), self);
  prepare(acceptor);
  Result<std::vector<Address>> to = resolve(hosts[static_cast<size_t>(leader)], launch.port);
  if (!to) return std::optional<Launch>();
  acceptor.join({.peer = leader, .lane = 0, .to = *to});
  for (const auto until = Clock::now() + wait; present.empty() && Clock::now() < until;)
    CLEAVE_RETURN_IF_ERROR(acceptor.turn());
  if (present.empty()) return std::optional<Launch>();
  const std::optional<std::vector<int32_t>> ranks = receive(present.begin()->second);
  ::close(present.begin()->second);
  present.clear();
  if (!ranks || !std::ranges::count(*ranks, self.rank)) return std::optional<Launch>();
  CLEAVE_ASSIGN_OR_RETURN(Launch next, launchOf(*ranks, leader));
  return std::optional<Launch>(next);
}

Result<Launch> MembershipVote::run() {
  for (int leader = 0; leader < self.rank; ++leader) {
    CLEAVE_ASSIGN_OR_RETURN(std::optional<Launch> joined, joinAt(leader));
    if (joined) return *joined;
  }
  return lead();
}

} // namespace

Result<Launch> agreeOnMembers(const Launch &launch, const Network &network, const std::vector<std::string> &hosts,
                              double seconds) {
  MembershipVote call(launch, network, hosts, seconds);
  return call.run();
}

} // namespace cleave::runtime::tcp
