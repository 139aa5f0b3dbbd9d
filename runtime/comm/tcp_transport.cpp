// One socket for every pair of ranks and lane (tcp/meeting.h). A rank that dies closes its sockets, which its peers see
// at once.
#include "runtime/comm/tcp/address.h"
#include "runtime/comm/tcp/meeting.h"
#include "runtime/comm/tcp/tcp_watch_line.h"
#include "runtime/comm/transport.h"
#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace cleave::runtime {
namespace {

class TcpTransport final : public Transport {
public:
  ~TcpTransport() override {
    for (auto &lane : sockets)
      for (int socket : lane)
        if (socket >= 0) ::close(socket);
    if (bell >= 0) ::close(bell);
  }
  Status connect(const Launch &launch, const Network &network, const std::string &plan);
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
  WatchLine &watchLine() override { return *watch; }
  int lostPeer() override {
    for (int peer = 0; peer < count; ++peer) {
      if (peer == self) continue;
      char next;
      ssize_t seen = ::recv(sockets[controlLane][static_cast<size_t>(peer)], &next, 1, MSG_PEEK | MSG_DONTWAIT);
      if (seen == 0 || (seen < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return peer;
    }
    return -1;
  }
  std::vector<std::string> hosts() const override {
    std::vector<std::string> all;
    for (int peer = 0; peer < count; ++peer)
      all.push_back(peer == self ? tcp::ownAddress(sockets[controlLane][self == 0 ? 1 : 0]).host()
                                 : tcp::peerAddress(sockets[controlLane][static_cast<size_t>(peer)]).host());
    return all;
  }
  void abort(const std::string &, int) override {
    for (int lane = 0; lane < lanes; ++lane) // the watch line may still say why
      for (int socket : sockets[static_cast<size_t>(lane)])
        if (socket >= 0 && lane != Transport::watchLane) ::shutdown(socket, SHUT_RDWR);
  }

private:
  int self = 0, count = 1;
  int bell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); // wakes the courier
  tcp::Sockets sockets;                                // by lane and peer
  std::atomic<int64_t> moved{0};                       // bytes, by all lanes
  std::unique_ptr<tcp::TcpWatchLine> watch;
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

Status TcpTransport::connect(const Launch &launch, const Network &network, const std::string &plan) {
  self = launch.rank, count = launch.size;
  for (LaneState &state : states)
    state.out.resize(static_cast<size_t>(count)), state.in.resize(static_cast<size_t>(count));
  Result<tcp::Sockets> met = tcp::meet(launch, network, plan);
  if (!met) return met.status();
  sockets = std::move(*met);
  watch = std::make_unique<tcp::TcpWatchLine>(self, sockets[Transport::watchLane], moved);
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
      ssize_t count = send ? ::send(socket, piece.data + queue.done, left, MSG_NOSIGNAL)
                           : ::recv(socket, piece.data + queue.done, left, 0);
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      moved.fetch_add(count, std::memory_order_relaxed);
      queue.done += count;
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
    moved.fetch_add(count, std::memory_order_relaxed);
    box.moved = true;
  }
  return true;
}

void TcpTransport::failMail(Mailbox &box, const std::string &why) {
  box.isOpen = false;
  for (MailRoute *route : box.routes) route->failure = runError(why);
}

// Chooses the next frame: word of buffers that are free again before messages, since the other side may wait for it.
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
  bool any = false;
  for (Mailbox &box : mailboxes) {
    if (box.routes.empty() || !box.isOpen) continue;
    box.moved = false;
    sendMail(box);
    receiveMail(box);
    any |= box.moved;
  }
  return any;
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

Result<std::unique_ptr<Transport>> openTcpTransport(const Launch &launch, const Network &network,
                                                    const std::string &plan) {
  auto transport = std::make_unique<TcpTransport>();
  CLEAVE_RETURN_IF_ERROR(transport->connect(launch, network, plan));
  return std::unique_ptr<Transport>(std::move(transport));
}

} // namespace cleave::runtime
