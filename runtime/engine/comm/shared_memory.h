// Streams of bytes between processes of one host, over memory that both map: each rank has one region per lane, with a
// ring of bytes from each peer and the signal on which it sleeps.
//
//   Result<std::shared_ptr<SharedRegion>> own = SharedRegion::create(3);     // three peers on this host
//   send((*own)->offer(0));                                                  // to the first of them
//   Result<std::shared_ptr<SharedRegion>> theirs = SharedRegion::open(received);
//   SharedLink link(socket, *own, 0, *theirs, received.slot);
//
// The memory is a sealed memfd, which a peer opens by the owner's process number: the same user's, in one PID
// namespace.
#pragma once
#include "runtime/base/status.h"
#include "runtime/base/threads/wait.h"
#include "runtime/engine/comm/link.h"
#include <array>
#include <memory>
#include <vector>

namespace cleave::runtime {

// Where a peer finds its ring.
struct SharedOffer {
  int32_t process = 0, file = -1; // -1: there is no region
  int32_t slot = 0, slots = 0;
  std::array<std::byte, 16> nonce{};
};

class SharedRegion {
public:
  struct Ring;
  // Error: there is no memory for it.
  static Result<std::shared_ptr<SharedRegion>> create(int slots);
  // Error: it cannot be reached from here, or is not what was offered.
  static Result<std::shared_ptr<SharedRegion>> open(const SharedOffer &offer);
  ~SharedRegion();
  SharedRegion(const SharedRegion &) = delete;
  SharedOffer offer(int slot) const;
  WakeSignal &signal() const;
  Ring &ring(int slot) const;

private:
  SharedRegion(int file, int slots) : file(file), slots(slots) {}
  Status map();
  int file, slots;
  std::byte *memory = nullptr;
};

class SharedLink final : public Link {
public:
  // `own`: whose ring of slot `in` the peer fills; `theirs`: whose ring of slot `out` this rank fills. The link closes
  // the socket, which carries nothing any more but its end.
  SharedLink(int socket, std::shared_ptr<SharedRegion> own, int in, std::shared_ptr<SharedRegion> theirs, int out);
  ~SharedLink() override;
  ssize_t send(std::span<const iovec> parts) override;
  ssize_t receive(std::span<const iovec> parts) override;
  int socket() const override { return fd; }
  bool isShared() const override { return true; }
  void checkEnd() override;
  void shutdown() override;

private:
  const int fd;
  const std::shared_ptr<SharedRegion> own, theirs;
  SharedRegion::Ring &in, &out;
  bool isOver = false;
};

// A number that processes have in common which can share memory; 0: this one can with none.
uint64_t sharingDomain();

} // namespace cleave::runtime
