#include "runtime/engine/comm/tcp/tcp_health_link.h"
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace cleave::runtime::tcp {

TcpHealthLink::TcpHealthLink(int rank, std::vector<int> sockets, const std::atomic<int64_t> &moved)
    : self(rank), links(sockets.size()), moved(moved) {
  for (size_t peer = 0; peer < links.size(); ++peer) links[peer].socket = sockets[peer];
}

TcpHealthLink::~TcpHealthLink() {
  for (const Link &link : links)
    if (link.socket >= 0) ::close(link.socket);
}

void TcpHealthLink::flush(Link &link) {
  while (link.unsent > 0 && !link.hasEnded) {
    const char *from = reinterpret_cast<const char *>(&link.out) + (sizeof link.out - link.unsent);
    ssize_t sent = ::send(link.socket, from, link.unsent, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return; // full, or gone: receive() sees that
    link.unsent -= static_cast<size_t>(sent);
  }
}

bool TcpHealthLink::send(int peer, const HealthMessage &word) {
  std::lock_guard guard(lock);
  Link &link = links[static_cast<size_t>(peer)];
  if (link.socket < 0 || link.hasEnded) return true;
  flush(link);
  if (link.unsent > 0) return false;
  link.out = word, link.unsent = sizeof word;
  flush(link);
  return true;
}

bool TcpHealthLink::receive(int &peer, HealthMessage &word) {
  std::lock_guard guard(lock);
  for (Link &link : links) flush(link);
  for (size_t turn = 0; turn < links.size(); ++turn, next = (next + 1) % links.size()) {
    Link &link = links[next];
    while (link.socket >= 0 && !link.hasEnded) {
      char *to = reinterpret_cast<char *>(&link.in) + link.received;
      ssize_t got = ::recv(link.socket, to, sizeof link.in - link.received, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) break;
      link.hasEnded = got <= 0;
      if (link.hasEnded) break;
      link.received += static_cast<size_t>(got);
      if (link.received < sizeof link.in) continue;
      link.received = 0;
      peer = static_cast<int>(next), word = link.in;
      word.host[sizeof word.host - 1] = word.text[sizeof word.text - 1] = 0;
      return true;
    }
  }
  return false;
}

bool TcpHealthLink::hasEnded(int peer) const {
  std::lock_guard guard(lock);
  return links[static_cast<size_t>(peer)].hasEnded;
}

void TcpHealthLink::rest(std::chrono::milliseconds most) {
  std::vector<pollfd> polls;
  {
    std::lock_guard guard(lock);
    for (const Link &link : links)
      if (link.socket >= 0 && !link.hasEnded)
        polls.push_back({link.socket, static_cast<short>(link.unsent > 0 ? POLLIN | POLLOUT : POLLIN), 0});
  }
  ::poll(polls.data(), polls.size(), static_cast<int>(most.count()));
}

} // namespace cleave::runtime::tcp
