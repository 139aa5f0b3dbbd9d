// A stream of bytes to one peer and from it, which never waits: a socket, or memory that both processes map
// (shared_memory.h).
#pragma once
#include <cstddef>
#include <span>
#include <sys/types.h>
#include <sys/uio.h>

namespace cleave::runtime {

class Link {
public:
  virtual ~Link() = default;
  // Bytes that have gone or come; 0: none now; -1: the peer is gone, and all that it had sent has been received.
  virtual ssize_t send(std::span<const iovec> parts) = 0;
  virtual ssize_t receive(std::span<const iovec> parts) = 0;
  virtual int socket() const = 0;    // to poll, and whose end is the peer's
  virtual bool isShared() const = 0; // woken by its memory, not by its socket
  virtual void checkEnd() {}         // of a shared one: looks whether the peer has ended
  virtual void shutdown() = 0;       // from any thread: both ends see the end of the stream
};

} // namespace cleave::runtime
