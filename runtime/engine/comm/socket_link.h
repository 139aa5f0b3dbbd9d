// A link over a connected, non-blocking socket, which it closes.
#pragma once
#include "runtime/engine/comm/link.h"

namespace cleave::runtime {

class SocketLink final : public Link {
public:
  explicit SocketLink(int socket) : fd(socket) {}
  ~SocketLink() override;
  SocketLink(const SocketLink &) = delete;
  ssize_t send(std::span<const iovec> parts) override;
  ssize_t receive(std::span<const iovec> parts) override;
  int socket() const override { return fd; }
  bool isShared() const override { return false; }
  void shutdown() override;

private:
  const int fd;
};

// Whether the other end has closed, or the connection is lost.
bool hasEnded(int socket);

} // namespace cleave::runtime
