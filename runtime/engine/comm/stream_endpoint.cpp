#include "runtime/engine/comm/stream_endpoint.h"
#include "runtime/engine/comm/socket_link.h"
#include <algorithm>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace cleave::runtime {
namespace {

constexpr int restMilliseconds = 50;
constexpr auto restOfBoth = std::chrono::microseconds(100); // where sockets and memory are waited for in turn
constexpr uint32_t setupTag = 0xffffffff;
constexpr int64_t messageHeaderBytes = 24;

} // namespace

StreamEndpoint::StreamEndpoint(Place place, std::atomic<int64_t> &moved)
    : place(place), moved(moved), peers(static_cast<size_t>(place.size)),
      wakeFile(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  static_assert(sizeof(Header) == messageHeaderBytes);
}

StreamEndpoint::~StreamEndpoint() {
  if (wakeFile >= 0) ::close(wakeFile);
}

void StreamEndpoint::setLink(int peer, std::unique_ptr<Link> link) {
  std::lock_guard guard(linking);
  if (!isLinked(peer)) linked.push_back(peer);
  peers[static_cast<size_t>(peer)].link = std::move(link);
}

// False: nothing goes to or comes from its peer any more, and the message is done.
bool StreamEndpoint::isOpenFor(Message &message) {
  Peer &peer = peers[static_cast<size_t>(message.peer)];
  if (!peer.link) peer.failure = runError(fmt::format("no connection to rank {}", message.peer));
  message.failure = peer.failure, message.isDone = !peer.failure;
  return !message.isDone;
}

void StreamEndpoint::isend(Message &message) {
  if (isOpenFor(message)) peers[static_cast<size_t>(message.peer)].sends.push_back(&message);
}

void StreamEndpoint::irecv(Message &message) {
  if (!isOpenFor(message)) return;
  Peer &peer = peers[static_cast<size_t>(message.peer)];
  peer.receives.push_back(&message);
  if (place.isAnnounced) peer.toAnnounce.push_back(message.tag);
}

void StreamEndpoint::cancel(Message &message) {
  Peer &peer = peers[static_cast<size_t>(message.peer)];
  // The link would be in the middle of it.
  if (peer.sending == &message || peer.receiving == &message) fail(peer, "a message was given up on its way");
  std::erase(peer.sends, &message);
  std::erase(peer.receives, &message);
}

void StreamEndpoint::fail(Peer &peer, const std::string &why) {
  if (peer.failure) peer.failure = runError(why);
  for (std::vector<Message *> *messages : {&peer.sends, &peer.receives})
    for (Message *message : std::exchange(*messages, {})) message->failure = peer.failure, message->isDone = true;
  peer.sending = peer.receiving = nullptr, peer.isSending = false, peer.toAnnounce.clear();
}

void StreamEndpoint::failEnded(int number, Peer &peer) {
  fail(peer, fmt::format("rank {} is gone (its connection closed)", number));
}

bool StreamEndpoint::progress() {
  if (region) epoch = region->signal().epoch();
  bool any = false;
  for (int number : linked) {
    Peer &peer = peers[static_cast<size_t>(number)];
    if (!peer.failure) continue;
    any |= sendTo(number, peer);
    if (expects(peer)) any |= receiveFrom(number, peer);
  }
  return any;
}

// Chooses what goes next; room for messages is told before messages, since the other side may wait for it.
bool StreamEndpoint::beginNext(Peer &peer) {
  Header header{.run = place.run, .lane = static_cast<uint16_t>(place.lane)};
  auto next = peer.sends.begin();
  if (!peer.toAnnounce.empty()) {
    header.kind = Ready, header.tag = peer.toAnnounce.front();
    peer.toAnnounce.erase(peer.toAnnounce.begin());
    peer.sending = nullptr;
  } else {
    if (place.isAnnounced) {
      auto isWanted = [&](const Message *message) { return std::ranges::count(peer.announced, message->tag) > 0; };
      next = std::ranges::find_if(peer.sends, isWanted);
    }
    if (next == peer.sends.end()) return false;
    peer.sending = *next;
    header.tag = peer.sending->tag, header.bytes = peer.sending->bytes, header.number = ++peer.sent;
    if (place.isAnnounced) peer.announced.erase(std::ranges::find(peer.announced, header.tag));
    std::rotate(peer.sends.begin(), next, next + 1); // it stays the first until it has gone
  }
  peer.out = header, peer.outDone = 0, peer.isSending = true;
  return true;
}

bool StreamEndpoint::sendTo(int number, Peer &peer) {
  bool any = false;
  while (peer.isSending || beginNext(peer)) {
    iovec parts[2];
    size_t count = 0;
    if (peer.outDone < messageHeaderBytes)
      parts[count++] = {reinterpret_cast<std::byte *>(&peer.out) + peer.outDone,
                        static_cast<size_t>(messageHeaderBytes - peer.outDone)};
    const int64_t done = std::max<int64_t>(0, peer.outDone - messageHeaderBytes);
    if (done < peer.out.bytes) parts[count++] = {peer.sending->data + done, static_cast<size_t>(peer.out.bytes - done)};
    const ssize_t gone = peer.link->send({parts, count});
    if (gone < 0) failEnded(number, peer);
    if (gone <= 0) return any || gone < 0;
    any = true;
    moved.fetch_add(gone, std::memory_order_relaxed);
    peer.outDone += gone;
    if (peer.outDone < messageHeaderBytes + peer.out.bytes) continue;
    peer.isSending = false;
    if (!peer.sending) continue;
    std::exchange(peer.sending, nullptr)->isDone = true;
    peer.sends.erase(peer.sends.begin());
  }
  return any;
}

// Compares a whole header with what is expected. False: the link has failed.
bool StreamEndpoint::takeHeader(int number, Peer &peer) {
  const Header &in = peer.in;
  if (in.run != place.run || in.lane != place.lane || in.kind > (place.isAnnounced ? Ready : Data) || in.bytes < 0) {
    fail(peer, fmt::format("rank {} sends what is no message of this run's lane {}", number, place.lane));
    return false;
  }
  if (in.kind == Ready) {
    peer.announced.push_back(in.tag);
    peer.inDone = 0;
    return true;
  }
  auto isMeant = [&](const Message *message) { return !place.isAnnounced || message->tag == in.tag; };
  auto found = std::ranges::find_if(peer.receives, isMeant);
  const Message *expected = found == peer.receives.end() ? nullptr : *found;
  const bool fits = expected && (place.isAnnounced ? in.bytes <= expected->bytes : in.bytes == expected->bytes);
  if (!fits || expected->tag != in.tag || in.number != peer.received + 1) {
    fail(peer, fmt::format("rank {} sends message {}, {} of {} bytes, where message {}, {}, is expected: the ranks do "
                           "not do the same",
                           number, in.number, nameOf(in.tag), in.bytes, peer.received + 1,
                           expected ? fmt::format("{} of {} bytes", nameOf(expected->tag), expected->bytes) : "none"));
    return false;
  }
  ++peer.received;
  peer.receiving = *found;
  return true;
}

bool StreamEndpoint::receiveFrom(int number, Peer &peer) {
  bool any = false;
  while (expects(peer) && peer.failure) {
    iovec parts[2];
    size_t count = 0;
    if (peer.inDone < messageHeaderBytes)
      parts[count++] = {reinterpret_cast<std::byte *>(&peer.in) + peer.inDone,
                        static_cast<size_t>(messageHeaderBytes - peer.inDone)};
    // On an ordered lane it is known before its header is which message comes.
    Message *next = peer.receiving ? peer.receiving : place.isAnnounced ? nullptr : peer.receives.front();
    const int64_t done = std::max<int64_t>(0, peer.inDone - messageHeaderBytes), bytes = peer.receiving ? peer.in.bytes
                                                                                         : next         ? next->bytes
                                                                                                        : 0;
    if (done < bytes) parts[count++] = {next->data + done, static_cast<size_t>(bytes - done)};
    if (count > 0) {
      const ssize_t come = peer.link->receive({parts, count});
      if (come < 0) failEnded(number, peer);
      if (come <= 0) return any || come < 0;
      any = true;
      moved.fetch_add(come, std::memory_order_relaxed);
      peer.inDone += come;
    }
    if (!peer.receiving && peer.inDone >= messageHeaderBytes && (!takeHeader(number, peer) || !peer.receiving))
      continue;
    if (!peer.receiving || peer.inDone < messageHeaderBytes + peer.in.bytes) continue;
    Message *whole = std::exchange(peer.receiving, nullptr);
    std::erase(peer.receives, whole);
    whole->arrived = peer.in.bytes, whole->isDone = true;
    peer.inDone = 0;
  }
  return any;
}

void StreamEndpoint::addTo(std::vector<pollfd> &list) const {
  for (int number : linked) {
    const Peer &peer = peers[static_cast<size_t>(number)];
    if (!peer.failure || peer.link->isShared()) continue;
    const bool sends = peer.isSending || !peer.toAnnounce.empty() || (!place.isAnnounced && !peer.sends.empty());
    const auto events = static_cast<short>((sends ? POLLOUT : 0) | (expects(peer) ? POLLIN : 0));
    if (events) list.push_back({peer.link->socket(), events, 0});
  }
}

void StreamEndpoint::wait(int64_t) {
  polls.clear();
  addTo(polls);
  if (!region) {
    polls.push_back({wakeFile, POLLIN, 0});
    ::poll(polls.data(), polls.size(), restMilliseconds);
    uint64_t rung = 0;
    if (polls.back().revents && ::read(wakeFile, &rung, sizeof rung) < 0) return;
    return;
  }
  if (!polls.empty() && ::poll(polls.data(), polls.size(), 0) > 0) return;
  const auto most = polls.empty() ? std::chrono::milliseconds(restMilliseconds) : restOfBoth;
  if (region->signal().waitFor(epoch, most)) return;
  for (int number : linked) {
    Peer &peer = peers[static_cast<size_t>(number)];
    if (peer.failure && peer.link->isShared() && (peer.isSending || !peer.sends.empty() || expects(peer)))
      peer.link->checkEnd();
  }
}

void StreamEndpoint::notify() {
  if (region) return region->signal().notify();
  const uint64_t one = 1;
  if (::write(wakeFile, &one, sizeof one) < 0) return; // full: it is awake already
}

int StreamEndpoint::lostPeer() const {
  std::lock_guard guard(linking);
  for (int number : linked)
    if (const Peer &peer = peers[static_cast<size_t>(number)]; hasEnded(peer.link->socket())) return number;
  return -1;
}

void StreamEndpoint::shutdown() {
  std::lock_guard guard(linking);
  for (int number : linked) peers[static_cast<size_t>(number)].link->shutdown();
  notify();
}

Result<std::string> StreamEndpoint::shareMemory(const std::vector<int> &with, const Deadline &deadline) {
  std::string obstacle;
  if (with.empty()) return obstacle;
  std::shared_ptr<SharedRegion> own; // null: there is no memory for it
  Result<std::shared_ptr<SharedRegion>> made = SharedRegion::create(static_cast<int>(with.size()));
  if (made) own = std::move(*made);
  const size_t count = with.size();
  std::vector<SharedOffer> mine(count), theirs(count);
  std::vector<std::shared_ptr<SharedRegion>> opened(count);
  std::vector<int32_t> isOpened(count), isOpenedThere(count);
  auto swap = [&](auto &out, auto &in) {
    std::vector<Message> sends(count), receives(count);
    for (size_t i = 0; i < count; ++i) {
      sends[i] = {with[i], setupTag, reinterpret_cast<std::byte *>(&out[i]), sizeof out[i]};
      receives[i] = {with[i], setupTag, reinterpret_cast<std::byte *>(&in[i]), sizeof in[i]};
    }
    return exchange(*this, sends, receives, deadline);
  };
  for (size_t i = 0; i < count && own; ++i) mine[i] = own->offer(static_cast<int>(i));
  CLEAVE_RETURN_IF_ERROR(swap(mine, theirs));
  for (size_t i = 0; i < count && own; ++i)
    if (Result<std::shared_ptr<SharedRegion>> found = SharedRegion::open(theirs[i]); found)
      opened[i] = std::move(*found), isOpened[i] = 1;
    else
      obstacle = fmt::format("rank {}: {}", with[i], found.status().message());
  if (!own) obstacle = fmt::format("rank {}: {}", place.rank, made.status().message());
  CLEAVE_RETURN_IF_ERROR(swap(isOpened, isOpenedThere));
  for (size_t i = 0; i < count; ++i) {
    if (opened[i] && !isOpenedThere[i]) obstacle = fmt::format("rank {} cannot map rank {}'s", with[i], place.rank);
    if (!opened[i] || !isOpenedThere[i]) continue;
    const int socket = ::dup(peers[static_cast<size_t>(with[i])].link->socket());
    if (socket < 0) return runError("there are too few file descriptors (ulimit -n)");
    setLink(with[i], std::make_unique<SharedLink>(socket, own, static_cast<int>(i), opened[i], theirs[i].slot));
    std::lock_guard guard(linking);
    region = own;
  }
  return obstacle;
}

} // namespace cleave::runtime
