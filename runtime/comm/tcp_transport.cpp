// One socket for every pair of ranks and lane. Rank 0 listens at the launch's host and port and tells everybody where
// the others listen; of a pair, the higher rank connects. A rank that dies closes its sockets, which its peers see at
// once.
#include "runtime/comm/transport.h"
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace cleave::runtime {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto meetingTime = std::chrono::seconds(120);

struct Greeting {
  uint32_t magic = 0x434c5643;
  int32_t rank = 0, lane = -1; // lane -1: to rank 0, with the port to reach this rank at
  uint16_t port = 0;           // in host order
  uint16_t reserved = 0;
};
struct Address {
  sockaddr_storage where{};
  socklen_t length = 0;
};

std::string reason() { return std::strerror(errno); }

// Sends or receives all bytes, blocking.
bool transfer(int socket, void *data, size_t bytes, bool send) {
  auto *at = static_cast<char *>(data);
  while (bytes > 0) {
    ssize_t done = send ? ::send(socket, at, bytes, MSG_NOSIGNAL) : ::recv(socket, at, bytes, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done, bytes -= static_cast<size_t>(done);
  }
  return true;
}

int connectTo(const sockaddr *where, socklen_t length, Clock::time_point deadline) {
  while (true) {
    int socket = ::socket(where->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return -1;
    if (::connect(socket, where, length) == 0) return socket;
    int error = errno;
    ::close(socket);
    errno = error;
    if (Clock::now() > deadline) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void setPort(Address &address, uint16_t port) {
  if (address.where.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6 &>(address.where).sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in &>(address.where).sin_port = htons(port);
}

class TcpTransport final : public Transport {
public:
  ~TcpTransport() override {
    for (auto &lane : sockets)
      for (int socket : lane)
        if (socket >= 0) ::close(socket);
    if (listener >= 0) ::close(listener);
    if (bell >= 0) ::close(bell);
  }
  Status connect(const Launch &launch);
  int rank() const override { return self; }
  int size() const override { return count; }
  Status exchange(int lane, int channel, std::span<const Piece> sends, std::span<const Piece> receives,
                  const Patience &patience) override;
  bool carry(std::span<MailRoute> routes) override;
  void rest(std::span<const MailRoute> routes, int64_t idle) override;
  void notify() override {
    uint64_t one = 1;
    if (::write(bell, &one, sizeof one) < 0) return; // full: it is rung already
  }
  int lostPeer() override {
    for (int peer = 0; peer < count; ++peer) {
      if (peer == self) continue;
      char next;
      ssize_t seen = ::recv(sockets[controlLane][static_cast<size_t>(peer)], &next, 1, MSG_PEEK | MSG_DONTWAIT);
      if (seen == 0 || (seen < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return peer;
    }
    return -1;
  }
  void abort(const std::string &, int) override {
    for (auto &lane : sockets)
      for (int socket : lane)
        if (socket >= 0) ::shutdown(socket, SHUT_RDWR);
  }

private:
  Status listen(uint16_t port, uint16_t &chosen);
  Status meet(const std::string &host, const std::string &port, std::vector<Address> &addresses);
  Status acceptOne(std::vector<Address> *addresses, Clock::time_point deadline);

  int self = 0, count = 1, listener = -1;
  int bell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); // wakes the courier
  std::vector<int> sockets[lanes];
  // Progress of an exchange, by peer: which pieces of the list are its, and how far. Kept to allocate nothing later.
  struct Queue {
    std::vector<const Piece *> pieces;
    size_t next = 0;
    int64_t done = 0;
  };
  struct LaneState {
    std::vector<Queue> out, in;
    std::vector<pollfd> polls;
  } states[lanes];

  // The mail with one peer: all channels share a socket, in frames. A message is sent only when the receiver has said
  // that it has a buffer for it, so that one channel whose messages nobody takes does not hold up the others.
  struct Frame {
    int64_t bytes = 0; // of the message that follows
    int32_t channel = 0;
    int32_t granted = 0; // not 0: no message, but so many buffers of the channel are free (again)
  };
  struct Mailbox {
    std::vector<MailRoute *> routes;
    Frame out, in;
    int64_t outDone = 0, inDone = 0;
    bool isOpen = true, isSending = false, moved = false;
    MailRoute *sending = nullptr; // whose message follows the frame
  };
  std::vector<Mailbox> mailboxes; // by peer
  void openMail(std::span<MailRoute> routes);
  bool moveMail(Mailbox &box, bool send, void *data, int64_t bytes, int64_t &done);
  static void failMail(Mailbox &box, const std::string &why);
  static bool nextFrame(Mailbox &box);
  void sendMail(Mailbox &box);
  void receiveMail(Mailbox &box);
};

Status TcpTransport::listen(uint16_t port, uint16_t &chosen) {
  listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = INADDR_ANY;
  any.sin_port = htons(port);
  socklen_t length = sizeof any;
  if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr *>(&any), sizeof any) != 0 ||
      ::listen(listener, 1024) != 0 || ::getsockname(listener, reinterpret_cast<sockaddr *>(&any), &length) != 0)
    return inputError(fmt::format("rank {} cannot listen on port {}: {}", self, port, reason()));
  chosen = ntohs(any.sin_port);
  return Status::ok();
}

// Accepts one connection; with `addresses`, a greeting to rank 0, else a pair's socket.
Status TcpTransport::acceptOne(std::vector<Address> *addresses, Clock::time_point deadline) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd poll{listener, POLLIN, 0};
  if (left <= 0 || ::poll(&poll, 1, static_cast<int>(left)) <= 0)
    return runError(
        fmt::format("rank {}: not all of the {} processes arrived within {} s", self, count, meetingTime.count()));
  Address from;
  from.length = sizeof from.where;
  int socket = ::accept4(listener, reinterpret_cast<sockaddr *>(&from.where), &from.length, SOCK_CLOEXEC);
  Greeting greeting;
  bool good = socket >= 0 && transfer(socket, &greeting, sizeof greeting, false) &&
              greeting.magic == Greeting{}.magic && greeting.rank >= 0 && greeting.rank < count &&
              greeting.lane >= -1 && greeting.lane < lanes;
  if (good && addresses && greeting.lane == -1) {
    setPort(from, greeting.port);
    (*addresses)[static_cast<size_t>(greeting.rank)] = from;
    sockets[controlLane][static_cast<size_t>(greeting.rank)] = socket; // becomes the control lane's socket
    return Status::ok();
  }
  if (good && greeting.lane >= 0) {
    sockets[greeting.lane][static_cast<size_t>(greeting.rank)] = socket;
    return Status::ok();
  }
  if (socket >= 0) ::close(socket); // a stranger
  return acceptOne(addresses, deadline);
}

Status TcpTransport::meet(const std::string &host, const std::string &port, std::vector<Address> &addresses) {
  auto deadline = Clock::now() + meetingTime;
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (int code = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); code != 0)
    return inputError(fmt::format("rank 0 is to listen at {}:{}: {}", host, port, ::gai_strerror(code)));
  Address master;
  std::memcpy(&master.where, found->ai_addr, found->ai_addrlen);
  master.length = found->ai_addrlen;
  uint16_t number = ntohs(reinterpret_cast<sockaddr_in &>(master.where).sin_port);
  ::freeaddrinfo(found);
  uint16_t mine = 0;
  CLEAVE_RETURN_IF_ERROR(listen(self == 0 ? number : 0, mine));
  auto lost = [&](int peer) {
    return runError(fmt::format("rank {} lost rank {} while starting: {}", self, peer, reason()));
  };
  addresses.resize(static_cast<size_t>(count));
  std::vector<int> &control = sockets[controlLane];
  if (self == 0) {
    addresses[0] = master;
    for (int i = 1; i < count; ++i) CLEAVE_RETURN_IF_ERROR(acceptOne(&addresses, deadline));
    for (int peer = 1; peer < count; ++peer)
      if (control[static_cast<size_t>(peer)] < 0 ||
          !transfer(control[static_cast<size_t>(peer)], addresses.data(), addresses.size() * sizeof(Address), true))
        return lost(peer);
    return Status::ok();
  }
  int socket = connectTo(reinterpret_cast<sockaddr *>(&master.where), master.length, deadline);
  if (socket < 0) return runError(fmt::format("rank {} cannot reach rank 0 at {}:{}: {}", self, host, port, reason()));
  control[0] = socket;
  Greeting greeting{.rank = self, .lane = -1, .port = mine};
  if (!transfer(socket, &greeting, sizeof greeting, true) ||
      !transfer(socket, addresses.data(), addresses.size() * sizeof(Address), false))
    return lost(0);
  addresses[0] = master;
  return Status::ok();
}

Status TcpTransport::connect(const Launch &launch) {
  self = launch.rank, count = launch.size;
  for (int lane = 0; lane < lanes; ++lane) {
    sockets[lane].assign(static_cast<size_t>(count), -1);
    states[lane].out.resize(static_cast<size_t>(count)), states[lane].in.resize(static_cast<size_t>(count));
  }
  std::vector<Address> addresses;
  CLEAVE_RETURN_IF_ERROR(meet(launch.host, std::to_string(launch.port), addresses));
  auto deadline = Clock::now() + meetingTime;
  for (int lane = 0; lane < lanes; ++lane)
    for (int peer = 0; peer < self; ++peer) {
      int &socket = sockets[lane][static_cast<size_t>(peer)];
      if (socket >= 0) continue; // the control lane to rank 0
      Address &to = addresses[static_cast<size_t>(peer)];
      socket = connectTo(reinterpret_cast<sockaddr *>(&to.where), to.length, deadline);
      Greeting greeting{.rank = self, .lane = lane};
      if (socket < 0 || !transfer(socket, &greeting, sizeof greeting, true))
        return runError(fmt::format("rank {} cannot reach rank {}: {}", self, peer, reason()));
    }
  auto missing = [&] {
    for (int lane = 0; lane < lanes; ++lane)
      for (int peer = self + 1; peer < count; ++peer)
        if (sockets[lane][static_cast<size_t>(peer)] < 0) return true;
    return false;
  };
  while (missing()) CLEAVE_RETURN_IF_ERROR(acceptOne(nullptr, deadline));
  for (auto &lane : sockets)
    for (int socket : lane)
      if (socket >= 0) {
        int yes = 1;
        ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
      }
  return Status::ok();
}

Status TcpTransport::exchange(int lane, int, std::span<const Piece> sends, std::span<const Piece> receives,
                              const Patience &patience) {
  LaneState &state = states[lane];
  auto enqueue = [](std::vector<Queue> &queues, std::span<const Piece> pieces) {
    for (Queue &queue : queues) queue.pieces.clear(), queue.next = 0, queue.done = 0;
    for (const Piece &piece : pieces)
      if (piece.bytes > 0) queues[static_cast<size_t>(piece.peer)].pieces.push_back(&piece);
  };
  enqueue(state.out, sends);
  enqueue(state.in, receives);
  auto pending = [](const Queue &queue) { return queue.next < queue.pieces.size(); };
  auto advance = [&](Queue &queue, int socket, bool send) { // false: the peer is gone
    while (pending(queue)) {
      const Piece &piece = *queue.pieces[queue.next];
      auto left = static_cast<size_t>(piece.bytes - queue.done);
      ssize_t moved = send ? ::send(socket, piece.data + queue.done, left, MSG_NOSIGNAL)
                           : ::recv(socket, piece.data + queue.done, left, 0);
      if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
      if (moved < 0 && errno == EINTR) continue;
      if (moved <= 0) return false;
      queue.done += moved;
      if (queue.done == piece.bytes) ++queue.next, queue.done = 0;
    }
    return true;
  };
  while (true) {
    state.polls.clear();
    for (int peer = 0; peer < count; ++peer) {
      Queue &out = state.out[static_cast<size_t>(peer)], &in = state.in[static_cast<size_t>(peer)];
      int socket = sockets[lane][static_cast<size_t>(peer)];
      if (!advance(out, socket, true) || !advance(in, socket, false))
        return runError(fmt::format("rank {} is gone (its connection closed)", peer));
      short events = static_cast<short>((pending(out) ? POLLOUT : 0) | (pending(in) ? POLLIN : 0));
      if (events) state.polls.push_back({socket, events, 0});
    }
    if (state.polls.empty()) return Status::ok();
    if (patience.isAborted()) return runError("the run was aborted");
    if (patience.isOver()) {
      std::vector<int> silent;
      for (int peer = 0; peer < count; ++peer)
        if (pending(state.out[static_cast<size_t>(peer)]) || pending(state.in[static_cast<size_t>(peer)]))
          silent.push_back(peer);
      return runError(fmt::format("rank {} does not answer", fmt::join(silent, ", rank ")));
    }
    ::poll(state.polls.data(), state.polls.size(), 50); // then looks at its patience again
  }
}

// Which routes share a peer's socket; they stay the same.
void TcpTransport::openMail(std::span<MailRoute> routes) {
  mailboxes.resize(static_cast<size_t>(count));
  for (MailRoute &route : routes) mailboxes[static_cast<size_t>(route.peer)].routes.push_back(&route);
}

// Moves bytes of the mail socket; false when it takes or gives no more now, or the peer is gone.
bool TcpTransport::moveMail(Mailbox &box, bool send, void *data, int64_t bytes, int64_t &done) {
  int socket = sockets[mailLane][static_cast<size_t>(box.routes.front()->peer)];
  while (done < bytes) {
    auto *at = static_cast<char *>(data) + done;
    auto left = static_cast<size_t>(bytes - done);
    ssize_t count = send ? ::send(socket, at, left, MSG_NOSIGNAL) : ::recv(socket, at, left, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count <= 0) {
      failMail(box, fmt::format("rank {} is gone (its connection closed)", box.routes.front()->peer));
      return false;
    }
    done += count;
    box.moved = true;
  }
  return true;
}

void TcpTransport::failMail(Mailbox &box, const std::string &why) {
  box.isOpen = false;
  for (MailRoute *route : box.routes) route->failure = runError(why);
}

// What to send next: word of buffers that are free again before messages, since the other side may wait for it.
bool TcpTransport::nextFrame(Mailbox &box) {
  for (MailRoute *route : box.routes) {
    if (route->outgoing) continue;
    uint32_t free = route->ring->buffers() + route->ring->released() - route->granted;
    if (free == 0) continue;
    route->granted += free;
    box.out = {0, route->channel, static_cast<int32_t>(free)};
    return true;
  }
  for (MailRoute *route : box.routes) {
    if (!route->outgoing || route->used == route->granted || !(route->data = route->ring->tryTake(route->bytes)))
      continue;
    ++route->used;
    box.out = {route->bytes, route->channel, 0};
    box.sending = route;
    return true;
  }
  return false;
}

void TcpTransport::sendMail(Mailbox &box) {
  while (box.isOpen) {
    if (!box.isSending && !(box.isSending = nextFrame(box))) return;
    if (!moveMail(box, true, &box.out, sizeof box.out, box.outDone)) return;
    if (MailRoute *route = box.sending) {
      if (!moveMail(box, true, route->data, route->bytes, route->done)) return;
      route->ring->release();
      route->data = nullptr, route->done = 0;
    }
    box.isSending = false, box.sending = nullptr, box.outDone = 0;
  }
}

void TcpTransport::receiveMail(Mailbox &box) {
  while (box.isOpen) {
    if (!moveMail(box, false, &box.in, sizeof box.in, box.inDone)) return;
    bool isMessage = box.in.granted == 0;
    auto found = std::find_if(box.routes.begin(), box.routes.end(), [&](MailRoute *route) {
      return route->channel == box.in.channel && route->outgoing != isMessage;
    });
    MailRoute *route = found == box.routes.end() ? nullptr : *found;
    if (isMessage && route && !route->data && box.in.bytes > 0 && box.in.bytes <= route->ring->bytesOfBuffer()) {
      route->data = route->ring->tryClaim();
      route->bytes = box.in.bytes;
    }
    if (!route || (isMessage && !route->data))
      return failMail(box, fmt::format("rank {} sends a message of {} bytes on channel {}, which nobody expects",
                                       box.routes.front()->peer, box.in.bytes, box.in.channel));
    if (isMessage) {
      if (!moveMail(box, false, route->data, route->bytes, route->done)) return;
      route->ring->publish(route->bytes);
      route->data = nullptr, route->done = 0;
    } else {
      route->granted += static_cast<uint32_t>(box.in.granted);
    }
    box.inDone = 0;
  }
}

bool TcpTransport::carry(std::span<MailRoute> routes) {
  if (mailboxes.empty()) openMail(routes);
  bool moved = false;
  for (Mailbox &box : mailboxes) {
    if (box.routes.empty() || !box.isOpen) continue;
    box.moved = false;
    sendMail(box);
    receiveMail(box);
    moved |= box.moved;
  }
  return moved;
}

void TcpTransport::rest(std::span<const MailRoute>, int64_t) {
  std::vector<pollfd> &polls = states[mailLane].polls;
  polls.clear();
  polls.push_back({bell, POLLIN, 0});
  for (const Mailbox &box : mailboxes)
    if (!box.routes.empty() && box.isOpen)
      polls.push_back({sockets[mailLane][static_cast<size_t>(box.routes.front()->peer)],
                       static_cast<short>(box.isSending ? POLLIN | POLLOUT : POLLIN), 0});
  ::poll(polls.data(), polls.size(), 50);
  uint64_t rung = 0;
  if (::read(bell, &rung, sizeof rung) < 0) return; // nobody rang
}

} // namespace

Result<std::unique_ptr<Transport>> openTcpTransport(const Launch &launch) {
  auto transport = std::make_unique<TcpTransport>();
  CLEAVE_RETURN_IF_ERROR(transport->connect(launch));
  return std::unique_ptr<Transport>(std::move(transport));
}

} // namespace cleave::runtime
