#include "runtime/comm/tcp/meeting.h"
#include "runtime/comm/tcp/reception.h"
#include "runtime/comm/transport.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace cleave::runtime::tcp {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto firstNote = std::chrono::seconds(5), laterNotes = std::chrono::seconds(30);
constexpr auto timeToHearWhy = std::chrono::seconds(2);   // of ranks that come when the run is already given up
constexpr auto graceOfTheFirst = std::chrono::seconds(5); // for rank 0 to say why it gives up

// Rank 0's message to those that it has met: where all listen, or why there will be no run.
struct RollHeader {
  uint32_t isFailure = 0, bytes = 0;
};

bool isLinked(int lane, int a, int b) { return lane != Transport::watchLane || a == 0 || b == 0; }

std::string ranksText(const std::vector<int> &ranks) {
  constexpr size_t most = 16;
  const auto shown = static_cast<ptrdiff_t>(std::min(most, ranks.size()));
  std::string text =
      fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks.begin(), ranks.begin() + shown, ", "));
  if (ranks.size() > most) text += fmt::format(" and {} more", ranks.size() - most);
  return text;
}

class Meeting {
public:
  Meeting(const Launch &launch, const Network &network, const std::string &plan)
      : launch(launch), network(network), self{launch.rank, launch.size, digestOf(plan)},
        reception(network.secret.value_or(RunSecret{}), self), noteDue(Clock::now() + firstNote),
        deadline(Clock::now() +
                 std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(network.meetingSeconds))),
        sockets(Transport::lanes, std::vector<int>(static_cast<size_t>(launch.size), -1)),
        addresses(static_cast<size_t>(launch.size)) {}
  ~Meeting() {
    for (auto &lane : sockets)
      for (int socket : lane)
        if (socket >= 0) ::close(socket);
  }
  Status run();
  Sockets release() { return std::exchange(sockets, {}); }

private:
  Status findHosts();
  Status checkAllowed(const Address &address) const;
  Status listenAsFirst();
  Result<uint16_t> listenBeside(int socket);
  void place(const Met &met);
  bool isTaken(int lane, int peer) const;
  Status meetAll();
  Status greetFirst();
  Status joinOthers();
  Status transfer(int socket, void *data, size_t bytes, bool send, int peer);
  Status sendRoll();
  void tellFailure(const Status &why);
  Status receiveRoll();
  std::vector<int> missing() const;
  std::string whoIsMissing() const;
  Status tooLate() const;
  void noteWhenDue();
  int control(int peer) const { return sockets[Transport::controlLane][static_cast<size_t>(peer)]; }

  const Launch &launch;
  const Network &network;
  const Self self;
  Reception reception;
  Clock::time_point noteDue;
  const Clock::time_point deadline;
  Sockets sockets;
  std::vector<Address> hosts, addresses; // of rank 0's name; where each rank listens
  bool isRolled = false;                 // all addresses are known
  std::string unresolved;
};

// Retried until the deadline: a name may come to be known after the processes that want it.
Status Meeting::findHosts() {
  const bool isHere = launch.localSize == launch.size && network.interface.empty();
  while (true) {
    Result<std::vector<Address>> found = resolve(isHere ? "127.0.0.1" : launch.host, launch.port);
    if (found) {
      hosts = std::move(*found);
      return Status::ok();
    }
    unresolved = fmt::format("rank {} cannot resolve '{}' (MASTER_ADDR, rank 0's host): {}", self.rank, launch.host,
                             found.status().message());
    if (Clock::now() >= deadline)
      return inputError(fmt::format("{}, for {:.0f} s", unresolved, network.meetingSeconds));
    noteWhenDue();
    ::poll(nullptr, 0, 300);
  }
}

Status Meeting::checkAllowed(const Address &address) const {
  if (network.secret || network.isInsecure || address.isLoopback()) return Status::ok();
  return inputError(fmt::format(
      "rank {}: rank 0 is at {}, where others may reach it, and the run has no secret: give all ranks the same "
      "CLEAVE_SECRET (of `openssl rand -hex 16`) or --secret-file FILE; or --insecure-network, where nobody "
      "else is on the network",
      self.rank, address.host()));
}

Status Meeting::listenAsFirst() {
  std::string why;
  for (Address at : hosts) {
    if (reception.from) at = *reception.from, at.setPort(static_cast<uint16_t>(launch.port));
    CLEAVE_RETURN_IF_ERROR(checkAllowed(at));
    if (int socket = listenAt(at); socket >= 0) {
      reception.open(socket);
      return Status::ok();
    }
    why = errno == EADDRNOTAVAIL ? fmt::format("{} is no address of this host; MASTER_ADDR is where rank 0 is, and "
                                               "--interface tells where it listens when that is another address",
                                               at.host())
                                 : fmt::format("at {}: {}", at.text(), std::strerror(errno));
  }
  return inputError(fmt::format("rank 0 cannot listen: {}", why));
}

// At the address from which rank 0 is reached. Its port.
Result<uint16_t> Meeting::listenBeside(int socket) {
  if (reception.listening() < 0) {
    Address at = ownAddress(socket);
    at.setPort(0);
    int listening = listenAt(at);
    if (listening < 0)
      return runError(fmt::format("rank {} cannot listen at {}: {}", self.rank, at.host(), std::strerror(errno)));
    reception.open(listening);
  }
  return ownAddress(reception.listening()).port();
}

void Meeting::place(const Met &met) {
  int &socket = sockets[static_cast<size_t>(met.lane)][static_cast<size_t>(met.peer)];
  if (socket >= 0) ::close(socket);
  socket = met.socket;
  int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (!met.hasJoined || met.lane != Transport::controlLane) return;
  Address where = met.where;
  where.setPort(met.port);
  addresses[static_cast<size_t>(met.peer)] = where;
}

// A socket that has ended makes room: a rank that heard no answer comes again.
bool Meeting::isTaken(int lane, int peer) const {
  if (lane >= Transport::lanes || peer >= self.size || !isLinked(lane, peer, self.rank)) return true;
  int socket = sockets[static_cast<size_t>(lane)][static_cast<size_t>(peer)];
  if (socket < 0) return false;
  char next;
  ssize_t seen = ::recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return seen > 0 || (seen < 0 && (errno == EAGAIN || errno == EINTR));
}

Status Meeting::run() {
  reception.onMet = [this](const Met &met) { place(met); };
  reception.isTaken = [this](int lane, int peer) { return isTaken(lane, peer); };
  reception.portToTell = [this](int socket) { return listenBeside(socket); };
  if (!network.interface.empty()) {
    Result<Address> own = addressOfInterface(network.interface);
    if (!own) return own.status();
    reception.from = *own;
  }
  CLEAVE_RETURN_IF_ERROR(findHosts());
  CLEAVE_RETURN_IF_ERROR(self.rank == 0 ? greetFirst() : joinOthers());
  return meetAll();
}

Status Meeting::greetFirst() {
  CLEAVE_RETURN_IF_ERROR(listenAsFirst());
  Status met = meetAll();
  if (!met) {
    for (auto until = std::min(deadline, Clock::now() + timeToHearWhy); !missing().empty() && Clock::now() < until;)
      (void)reception.turn();
    tellFailure(met);
    return met;
  }
  CLEAVE_RETURN_IF_ERROR(sendRoll());
  isRolled = true;
  return Status::ok();
}

Status Meeting::joinOthers() {
  for (const Address &host : hosts) CLEAVE_RETURN_IF_ERROR(checkAllowed(host));
  reception.join({.peer = 0, .lane = Transport::controlLane, .to = hosts});
  while (control(0) < 0) {
    if (Clock::now() >= deadline) return tooLate();
    CLEAVE_RETURN_IF_ERROR(reception.turn());
    noteWhenDue();
  }
  CLEAVE_RETURN_IF_ERROR(receiveRoll());
  addresses[0] = peerAddress(control(0));
  isRolled = true;
  for (int lane = 0; lane < Transport::lanes; ++lane)
    for (int peer = 0; peer < self.rank; ++peer)
      if (isLinked(lane, peer, self.rank) && sockets[static_cast<size_t>(lane)][static_cast<size_t>(peer)] < 0)
        reception.join({.peer = peer, .lane = lane, .to = {addresses[static_cast<size_t>(peer)]}});
  return Status::ok();
}

// Until nobody is missing.
Status Meeting::meetAll() {
  while (!missing().empty()) {
    if (Clock::now() >= deadline) return tooLate();
    CLEAVE_RETURN_IF_ERROR(reception.turn());
    noteWhenDue();
  }
  return Status::ok();
}

Status Meeting::tooLate() const {
  return runError(fmt::format("not all of the {} processes arrived within {:.0f} s: {}", self.size,
                              network.meetingSeconds, whoIsMissing()));
}

// Ranks to which this one has not all sockets; before all addresses are known, not that of the control lane.
std::vector<int> Meeting::missing() const {
  std::vector<int> ranks;
  for (int peer = 0; peer < self.size; ++peer) {
    bool isMissing = false;
    for (int lane = 0; lane < Transport::lanes && peer != self.rank; ++lane)
      isMissing |= (isRolled ? isLinked(lane, peer, self.rank) : lane == Transport::controlLane) &&
                   sockets[static_cast<size_t>(lane)][static_cast<size_t>(peer)] < 0;
    if (isMissing) ranks.push_back(peer);
  }
  return ranks;
}

// "rank 0 waits for ranks 2, 5 of 8 at 10.0.0.1:29500".
std::string Meeting::whoIsMissing() const {
  if (hosts.empty()) return unresolved;
  std::string text;
  if (self.rank == 0 || isRolled)
    text = fmt::format("rank {} waits for {} of {} at {}", self.rank, ranksText(missing()), self.size,
                       ownAddress(reception.listening()).text());
  else if (control(0) >= 0)
    text = fmt::format("rank {} has met rank 0, which waits for others", self.rank);
  else
    text = fmt::format("rank {} waits for rank 0 at '{}' port {}", self.rank, launch.host, launch.port);
  if (self.rank == 0 && launch.localSize < self.size && ownAddress(reception.listening()).isLoopback())
    text += ", which only this host reaches (--interface)";
  if (!reception.lastObstacle.empty()) text += fmt::format("; it {}", reception.lastObstacle);
  if (reception.strangers > 0)
    text += fmt::format("; {} connections were none of the run's, the last one {}", reception.strangers,
                        reception.lastStranger);
  return text;
}

void Meeting::noteWhenDue() {
  if (Clock::now() < noteDue) return;
  noteDue += laterNotes;
  auto left = std::chrono::duration_cast<std::chrono::seconds>(deadline - Clock::now()).count();
  fmt::print(stderr, "cleave: {}; {} s are left\n", whoIsMissing(), std::max<int64_t>(0, left));
}

// All bytes, to or from a rank that is met. Error: it is gone, or the deadline has passed.
Status Meeting::transfer(int socket, void *data, size_t bytes, bool send, int peer) {
  auto *at = static_cast<char *>(data);
  while (bytes > 0) {
    ssize_t done = send ? ::send(socket, at, bytes, MSG_NOSIGNAL) : ::recv(socket, at, bytes, 0);
    if (done > 0) {
      at += done, bytes -= static_cast<size_t>(done);
      continue;
    }
    if (done == 0 || (errno != EAGAIN && errno != EINTR))
      return runError(fmt::format("rank {} lost rank {} while starting: {}", self.rank, peer,
                                  done == 0 ? "its connection closed" : std::strerror(errno)));
    if (Clock::now() >= deadline + graceOfTheFirst) return tooLate();
    pollfd poll{socket, static_cast<short>(send ? POLLOUT : POLLIN), 0};
    ::poll(&poll, 1, 100);
    noteWhenDue();
  }
  return Status::ok();
}

Status Meeting::sendRoll() {
  RollHeader header{.bytes = static_cast<uint32_t>(addresses.size() * sizeof(Address))};
  for (int peer = 1; peer < self.size; ++peer) {
    CLEAVE_RETURN_IF_ERROR(transfer(control(peer), &header, sizeof header, true, peer));
    CLEAVE_RETURN_IF_ERROR(transfer(control(peer), addresses.data(), header.bytes, true, peer));
  }
  return Status::ok();
}

void Meeting::tellFailure(const Status &why) {
  std::string text = why.message();
  RollHeader header{.isFailure = static_cast<uint32_t>(why.exitStatus()), .bytes = static_cast<uint32_t>(text.size())};
  for (int peer = 1; peer < self.size; ++peer)
    if (control(peer) >= 0 && transfer(control(peer), &header, sizeof header, true, peer))
      (void)transfer(control(peer), text.data(), text.size(), true, peer);
}

Status Meeting::receiveRoll() {
  RollHeader header;
  CLEAVE_RETURN_IF_ERROR(transfer(control(0), &header, sizeof header, false, 0));
  if (header.isFailure) {
    std::string text(std::min<size_t>(header.bytes, 4096), '\0');
    CLEAVE_RETURN_IF_ERROR(transfer(control(0), text.data(), text.size(), false, 0));
    return {header.isFailure == 1 ? ErrorKind::Input : ErrorKind::RunFailed, text};
  }
  if (header.bytes != addresses.size() * sizeof(Address))
    return runError(fmt::format("rank 0 tells {} bytes of addresses, {} are wanted", header.bytes,
                                addresses.size() * sizeof(Address)));
  return transfer(control(0), addresses.data(), header.bytes, false, 0);
}

} // namespace

Result<Sockets> meet(const Launch &launch, const Network &network, const std::string &plan) {
  Meeting meeting(launch, network, plan);
  CLEAVE_RETURN_IF_ERROR(meeting.run());
  return meeting.release();
}

} // namespace cleave::runtime::tcp
