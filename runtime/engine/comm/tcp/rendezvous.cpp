#include "runtime/engine/comm/tcp/rendezvous.h"
#include "runtime/base/packed.h"
#include "runtime/engine/comm/shared_memory.h"
#include "runtime/engine/comm/socket_link.h"
#include "runtime/engine/comm/transport.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

namespace cleave::runtime::tcp {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto firstNote = std::chrono::seconds(5), laterNotes = std::chrono::seconds(30);
constexpr auto timeToHearWhy = std::chrono::seconds(2);   // of ranks that come when the run is already given up
constexpr auto graceOfTheFirst = std::chrono::seconds(5); // for rank 0 to say why it gives up
constexpr rlim_t otherFiles = 64;                         // that a process has open beside its connections

// Rank 0's message to those that it has met: the run and where their parent listens, or why there will be no run.
struct RollHeader {
  uint32_t isFailure = 0, bytes = 0;
};
struct Roll {
  RunId run{};
  Address parent{};
};

std::string ranksText(const std::vector<int> &ranks) {
  constexpr size_t most = 16;
  const auto shown = static_cast<ptrdiff_t>(std::min(most, ranks.size()));
  std::string text =
      fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks.begin(), ranks.begin() + shown, ", "));
  if (ranks.size() > most) text += fmt::format(" and {} more", ranks.size() - most);
  return text;
}

// Raises the soft limit of open files as far as it goes.
Status allowFiles(size_t connections) {
  rlimit limit{};
  const rlim_t wanted = connections + otherFiles;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return Status::ok();
  if (limit.rlim_max < wanted)
    return inputError(fmt::format("this rank needs {} connections and may open {} files: raise the hard limit (ulimit "
                                  "-Hn {})",
                                  connections, limit.rlim_max, wanted));
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    return runError(fmt::format("the limit of open files cannot be raised to {}: {}", wanted, std::strerror(errno)));
  return Status::ok();
}

} // namespace

// What each rank tells all others.
struct Rendezvous::Place {
  std::array<std::byte, 16> host{};
  uint16_t port = 0, family = 0;
  uint32_t scope = 0;
  uint64_t domain = 0;
  int64_t needed = 0;

  explicit Place(const Address &at) : port(at.port()), family(at.where.ss_family) {
    if (family == AF_INET6) {
      const auto &six = reinterpret_cast<const sockaddr_in6 &>(at.where);
      std::memcpy(host.data(), &six.sin6_addr, 16);
      scope = six.sin6_scope_id;
    } else {
      std::memcpy(host.data(), &reinterpret_cast<const sockaddr_in &>(at.where).sin_addr, 4);
    }
  }
  Address address() const {
    Address at;
    at.where.ss_family = family;
    if (family == AF_INET6) {
      auto &six = reinterpret_cast<sockaddr_in6 &>(at.where);
      std::memcpy(&six.sin6_addr, host.data(), 16);
      six.sin6_scope_id = scope;
      at.length = sizeof six;
    } else {
      std::memcpy(&reinterpret_cast<sockaddr_in &>(at.where).sin_addr, host.data(), 4);
      at.length = sizeof(sockaddr_in);
    }
    at.setPort(port);
    return at;
  }
};

Rendezvous::Rendezvous(const Launch &launch, const Network &network, const std::string &plan)
    : launch(launch), network(network), self{launch.rank, launch.size, digestOf(plan + launch.job), {}},
      acceptor(network.secret.value_or(RunSecret{}), self), noteDue(Clock::now() + firstNote),
      addresses(static_cast<size_t>(launch.size)), domains(static_cast<size_t>(launch.size)) {
  setDeadline({network.meetingSeconds, TimeLimits().meeting.flag});
  acceptor.onMet = [this](const Met &met) { place(met); };
  acceptor.isTaken = [this](int lane, int peer) { return isTaken(lane, peer); };
  acceptor.portToTell = [this](int socket) { return listenBeside(socket); };
}

Rendezvous::~Rendezvous() {
  for (auto [pair, socket] : sockets) ::close(socket);
}

void Rendezvous::setDeadline(TimeLimit given) {
  limit = given;
  deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit.seconds));
}

uint32_t Rendezvous::run() const {
  uint32_t number = 0;
  std::memcpy(&number, self.run->data(), sizeof number);
  return number;
}

int Rendezvous::socketOf(Pair pair) const {
  auto found = sockets.find(pair);
  return found == sockets.end() ? -1 : found->second;
}

int Rendezvous::take(Pair pair) {
  const int socket = socketOf(pair);
  sockets.erase(pair);
  return socket;
}

bool Rendezvous::isBeside(int peer) const {
  const uint64_t mine = domains[static_cast<size_t>(self.rank)];
  return mine != 0 && domains[static_cast<size_t>(peer)] == mine;
}

std::vector<std::string> Rendezvous::hosts() const {
  std::vector<std::string> all;
  for (const Address &address : addresses) all.push_back(address.host());
  return all;
}

Status Rendezvous::findHosts() {
  const bool isHere = launch.localSize == launch.size && network.interface.empty();
  while (true) {
    Result<std::vector<Address>> found = resolve(isHere ? "127.0.0.1" : launch.host, launch.port);
    if (found) {
      firstHosts = std::move(*found);
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

Status Rendezvous::checkAllowed(const Address &address) const {
  if (network.secret || network.isInsecure || address.isLoopback()) return Status::ok();
  return inputError(fmt::format(
      "rank {}: rank 0 is at {}, where others may reach it, and the run has no secret: give all ranks the same "
      "CLEAVE_SECRET (of `openssl rand -hex 16`) or --secret-file FILE; or --insecure-network, where nobody "
      "else is on the network",
      self.rank, address.host()));
}

Status Rendezvous::listenAsFirst() {
  std::string why;
  for (Address at : firstHosts) {
    if (acceptor.from) at = *acceptor.from, at.setPort(static_cast<uint16_t>(launch.port));
    CLEAVE_RETURN_IF_ERROR(checkAllowed(at));
    if (int socket = listenAt(at); socket >= 0) {
      acceptor.open(socket);
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
Result<uint16_t> Rendezvous::listenBeside(int socket) {
  if (acceptor.listening() < 0) {
    Address at = ownAddress(socket);
    at.setPort(0);
    int listening = listenAt(at);
    if (listening < 0)
      return runError(fmt::format("rank {} cannot listen at {}: {}", self.rank, at.host(), std::strerror(errno)));
    acceptor.open(listening);
  }
  return ownAddress(acceptor.listening()).port();
}

void Rendezvous::place(const Met &met) {
  int &socket = sockets.try_emplace({met.lane, met.peer}, -1).first->second;
  if (socket >= 0) ::close(socket);
  socket = met.socket;
  int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (!met.hasJoined || !isRegistering) return;
  Address where = met.where;
  where.setPort(met.port);
  addresses[static_cast<size_t>(met.peer)] = where;
}

// A socket that has ended makes room: a rank that heard no answer comes again.
bool Rendezvous::isTaken(int lane, int peer) const {
  if (!wanted.contains({lane, peer})) return true;
  const int socket = socketOf({lane, peer});
  return socket >= 0 && !hasEnded(socket);
}

Status Rendezvous::meet() {
  if (!network.interface.empty()) {
    Result<Address> at = addressOfInterface(network.interface);
    if (!at) return at.status();
    acceptor.from = *at;
  }
  CLEAVE_RETURN_IF_ERROR(findHosts());
  CLEAVE_RETURN_IF_ERROR(allowFiles(self.rank == 0 ? static_cast<size_t>(self.size) : 16));
  CLEAVE_RETURN_IF_ERROR(self.rank == 0 ? registerAll() : registerAtFirst());
  return linkTree();
}

Status Rendezvous::registerAll() {
  CLEAVE_RETURN_IF_ERROR(listenAsFirst());
  acceptor.setRun({}); // all come before there is one
  for (int peer = 1; peer < self.size; ++peer) wanted.emplace(Transport::controlLane, peer);
  Status met = serveAll();
  if (!met) {
    for (auto until = std::min(deadline, Clock::now() + timeToHearWhy); !missing().empty() && Clock::now() < until;)
      (void)acceptor.turn();
    tellFailure(met);
    return met;
  }
  randombytes_buf(self.run.emplace().data(), sizeof(RunId));
  return sendRoll();
}

Status Rendezvous::registerAtFirst() {
  for (const Address &host : firstHosts) CLEAVE_RETURN_IF_ERROR(checkAllowed(host));
  const Pair first{Transport::controlLane, 0};
  wanted.insert(first);
  acceptor.join({.peer = 0, .lane = Transport::controlLane, .to = firstHosts});
  CLEAVE_RETURN_IF_ERROR(serveAll());
  addresses[0] = peerAddress(socketOf(first));
  CLEAVE_RETURN_IF_ERROR(receiveRoll());
  if (parentOf(self.rank) != 0) ::close(take(first));
  return Status::ok();
}

// Connects with parent and children, on both lanes of the tree; with rank 0 one of them is there.
Status Rendezvous::linkTree() {
  isRegistering = false;
  acceptor.setRun(*self.run);
  wanted.clear();
  for (int lane : {Transport::controlLane, Transport::healthLane}) {
    for (int peer : neighboursOf(self.rank, self.size)) wanted.emplace(lane, peer);
    const int parent = parentOf(self.rank);
    if (parent >= 0 && socketOf({lane, parent}) < 0)
      acceptor.join({.peer = parent, .lane = lane, .to = {addresses[static_cast<size_t>(parent)]}});
  }
  return serveAll();
}

// Until nobody is missing.
Status Rendezvous::serveAll() {
  while (!missing().empty()) {
    if (Clock::now() >= deadline) return tooLate();
    CLEAVE_RETURN_IF_ERROR(acceptor.turn());
    noteWhenDue();
  }
  return Status::ok();
}

// Others may still need this rank while it waits for them.
Status Rendezvous::gatherPlaces(ControlPlane &control, int64_t needed, TimeLimit until, int64_t &allNeeded) {
  Place mine(own);
  mine.domain = network.sharesMemory ? sharingDomain() : 0, mine.needed = needed;
  Result<std::vector<std::string>> all = control.allGather(packed(mine), until);
  if (!all) return all.status();
  allNeeded = 0;
  for (int peer = 0; peer < self.size; ++peer) {
    std::string_view text = (*all)[static_cast<size_t>(peer)];
    Place theirs(own);
    if (!unpack(text, theirs) || !text.empty()) return runError(fmt::format("rank {} does not say where it is", peer));
    addresses[static_cast<size_t>(peer)] = theirs.address();
    domains[static_cast<size_t>(peer)] = theirs.domain;
    allNeeded += theirs.needed;
  }
  return Status::ok();
}

namespace {

// While the control plane waits, connections are served; the first failure of that is kept.
class ServingWhileWaiting {
public:
  ServingWhileWaiting(ControlPlane &control, StreamEndpoint &tree, Acceptor &acceptor) : control(control) {
    control.whileWaiting = [this, &tree, &acceptor] {
      polls.clear();
      tree.addTo(polls);
      Status turn = acceptor.turn(polls);
      if (status) status = std::move(turn);
    };
  }
  ~ServingWhileWaiting() { control.whileWaiting = nullptr; }
  Status status;

private:
  ControlPlane &control;
  std::vector<pollfd> polls;
};

} // namespace

Status Rendezvous::confirm(StreamEndpoint &tree, ControlPlane &control) {
  ServingWhileWaiting serving(control, tree, acceptor);
  own = ownAddress(acceptor.listening());
  const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
  int64_t none = 0;
  Status all = gatherPlaces(control, 0, {std::max(1.0, left), limit.flag}, none);
  acceptor.close();
  return serving.status ? all : serving.status;
}

Status Rendezvous::listenAgain() {
  own.setPort(0);
  const int listening = listenAt(own);
  if (listening < 0)
    return runError(fmt::format("rank {} cannot listen at {}: {}", self.rank, own.host(), std::strerror(errno)));
  acceptor.open(listening);
  own = ownAddress(listening);
  return Status::ok();
}

Status Rendezvous::connect(const std::vector<Pair> &pairs, StreamEndpoint &tree, ControlPlane &control,
                           TimeLimit given) {
  CLEAVE_RETURN_IF_ERROR(allowFiles(pairs.size() + 16));
  wanted = {pairs.begin(), pairs.end()};
  setDeadline(given);
  noteDue = Clock::now() + firstNote;
  CLEAVE_RETURN_IF_ERROR(listenAgain());
  ServingWhileWaiting serving(control, tree, acceptor);
  int64_t needed = 0;
  Status status = gatherPlaces(control, static_cast<int64_t>(pairs.size()), limit, needed);
  if (status && needed > 0) {
    for (auto [lane, peer] : pairs)
      if (peer < self.rank) acceptor.join({.peer = peer, .lane = lane, .to = {addresses[static_cast<size_t>(peer)]}});
    status = serveAll();
    if (status) status = control.barrier(limit);
  }
  acceptor.close();
  return status ? serving.status : status;
}

Status Rendezvous::tooLate() const {
  return runError(fmt::format("not all of the {} processes arrived within {:.0f} s ({}): {}", self.size, limit.seconds,
                              limit.flag, whoIsMissing()));
}

// Ranks to which this one has not all sockets that it wants.
std::vector<int> Rendezvous::missing() const {
  std::set<int> ranks;
  for (const Pair &pair : wanted)
    if (socketOf(pair) < 0) ranks.insert(pair.second);
  return {ranks.begin(), ranks.end()};
}

// "rank 0 waits for ranks 2, 5 of 8 at 10.0.0.1:29500".
std::string Rendezvous::whoIsMissing() const {
  if (firstHosts.empty()) return unresolved;
  std::string text;
  if (self.rank == 0 || !isRegistering)
    text = fmt::format("rank {} waits for {} of {} at {}", self.rank, ranksText(missing()), self.size,
                       ownAddress(acceptor.listening()).text());
  else if (socketOf({Transport::controlLane, 0}) >= 0)
    text = fmt::format("rank {} has met rank 0, which waits for others", self.rank);
  else
    text = fmt::format("rank {} waits for rank 0 at '{}' port {}", self.rank, launch.host, launch.port);
  if (self.rank == 0 && launch.localSize < self.size && ownAddress(acceptor.listening()).isLoopback())
    text += ", which only this host reaches (--interface)";
  if (!acceptor.lastObstacle.empty()) text += fmt::format("; it {}", acceptor.lastObstacle);
  if (acceptor.unauthenticated > 0)
    text += fmt::format("; {} connections were none of the run's, the last one {}", acceptor.unauthenticated,
                        acceptor.lastUnauthenticated);
  return text;
}

void Rendezvous::noteWhenDue() {
  if (Clock::now() < noteDue) return;
  noteDue += laterNotes;
  auto left = std::chrono::duration_cast<std::chrono::seconds>(deadline - Clock::now()).count();
  fmt::print(stderr, "cleave: {}; {} s are left\n", whoIsMissing(), std::max<int64_t>(0, left));
}

// All bytes, to or from a rank that is met. Error: it is gone, or the deadline has passed.
Status Rendezvous::transfer(int socket, void *data, size_t bytes, bool send, int peer) {
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

Status Rendezvous::sendRoll() {
  const RollHeader header{.bytes = sizeof(Roll)};
  for (int peer = 1; peer < self.size; ++peer) {
    const Pair pair{Transport::controlLane, peer};
    RollHeader sent = header;
    Roll roll{*self.run, addresses[static_cast<size_t>(parentOf(peer))]};
    CLEAVE_RETURN_IF_ERROR(transfer(socketOf(pair), &sent, sizeof sent, true, peer));
    CLEAVE_RETURN_IF_ERROR(transfer(socketOf(pair), &roll, sizeof roll, true, peer));
    if (parentOf(peer) != 0) ::close(take(pair));
  }
  return Status::ok();
}

void Rendezvous::tellFailure(const Status &why) {
  std::string text = why.message();
  RollHeader header{.isFailure = static_cast<uint32_t>(why.exitStatus()), .bytes = static_cast<uint32_t>(text.size())};
  for (int peer = 1; peer < self.size; ++peer) {
    const int socket = socketOf({Transport::controlLane, peer});
    if (socket >= 0 && transfer(socket, &header, sizeof header, true, peer))
      (void)transfer(socket, text.data(), text.size(), true, peer);
  }
}

Status Rendezvous::receiveRoll() {
  const int socket = socketOf({Transport::controlLane, 0});
  RollHeader header;
  CLEAVE_RETURN_IF_ERROR(transfer(socket, &header, sizeof header, false, 0));
  if (header.isFailure) {
    std::string text(std::min<size_t>(header.bytes, 4096), '\0');
    CLEAVE_RETURN_IF_ERROR(transfer(socket, text.data(), text.size(), false, 0));
    return {header.isFailure == 1 ? ErrorKind::Input : ErrorKind::RunFailed, text};
  }
  Roll roll;
  if (header.bytes != sizeof roll) return runError("rank 0 does not say where the others are");
  CLEAVE_RETURN_IF_ERROR(transfer(socket, &roll, sizeof roll, false, 0));
  self.run = roll.run;
  if (const int parent = parentOf(self.rank); parent != 0) addresses[static_cast<size_t>(parent)] = roll.parent;
  return Status::ok();
}

} // namespace cleave::runtime::tcp
