#include "runtime/engine/comm/socket_link.h"
#include <cerrno>
#include <sys/socket.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {

ssize_t transfer(int fd, std::span<const iovec> parts, bool isSent) {
  msghdr header{};
  header.msg_iov = const_cast<iovec *>(parts.data());
  header.msg_iovlen = parts.size();
  while (true) {
    const ssize_t moved = isSent ? ::sendmsg(fd, &header, MSG_NOSIGNAL) : ::recvmsg(fd, &header, 0);
    if (moved > 0) return moved;
    if (moved < 0 && errno == EINTR) continue;
    return moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
  }
}

} // namespace

SocketLink::~SocketLink() { ::close(fd); }
ssize_t SocketLink::send(std::span<const iovec> parts) { return transfer(fd, parts, true); }
ssize_t SocketLink::receive(std::span<const iovec> parts) { return transfer(fd, parts, false); }
void SocketLink::shutdown() { ::shutdown(fd, SHUT_RDWR); }

bool hasEnded(int socket) {
  char next;
  const ssize_t seen = ::recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return seen == 0 || (seen < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

} // namespace cleave::runtime
