#include "runtime/engine/comm/shared_memory.h"
#include "runtime/base/digest.h"
#include "runtime/engine/comm/socket_link.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <limits.h>
#include <new>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace cleave::runtime {
namespace {

constexpr uint64_t ringBytes = 1 << 19; // half of a core's second-level cache, so that copies stay in it
constexpr uint64_t copyBytes = 1 << 17; // after so many the other side may begin
constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;

struct Header {
  std::array<std::byte, 16> nonce;
  alignas(64) WakeSignal signal{WakeSignal::Shared};
};
constexpr size_t regionHeaderBytes = 4096;
static_assert(sizeof(Header) <= regionHeaderBytes);

} // namespace

// Positions only grow; each is written by one side.
struct SharedRegion::Ring {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  alignas(64) std::atomic<uint32_t> isClosed{0};
  alignas(64) std::byte bytes[ringBytes];
};

Result<std::shared_ptr<SharedRegion>> SharedRegion::create(int slots) {
  const int file = ::memfd_create("cleave", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return runError(fmt::format("memfd_create: {}", std::strerror(errno)));
  std::shared_ptr<SharedRegion> region(new SharedRegion(file, slots));
  if (::ftruncate(file, static_cast<off_t>(regionHeaderBytes + static_cast<size_t>(slots) * sizeof(Ring))) != 0 ||
      ::fcntl(file, F_ADD_SEALS, seals) != 0)
    return runError(fmt::format("memfd: {}", std::strerror(errno)));
  CLEAVE_RETURN_IF_ERROR(region->map());
  randombytes_buf((new (region->memory) Header)->nonce.data(), sizeof(Header::nonce));
  for (int slot = 0; slot < slots; ++slot) new (&region->ring(slot)) Ring;
  return region;
}

Result<std::shared_ptr<SharedRegion>> SharedRegion::open(const SharedOffer &offer) {
  if (offer.file < 0 || offer.slots < 1 || offer.slot < 0 || offer.slot >= offer.slots)
    return runError("no memory is offered");
  const std::string path = fmt::format("/proc/{}/fd/{}", offer.process, offer.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return runError(fmt::format("{}: {}", path, std::strerror(errno)));
  std::shared_ptr<SharedRegion> region(new SharedRegion(file, offer.slots));
  struct stat about{};
  if ((::fcntl(file, F_GET_SEALS) & seals) != seals || ::fstat(file, &about) != 0 ||
      about.st_size != static_cast<off_t>(regionHeaderBytes + static_cast<size_t>(offer.slots) * sizeof(Ring)))
    return runError(path + " is not the memory that was offered");
  CLEAVE_RETURN_IF_ERROR(region->map());
  if (reinterpret_cast<Header *>(region->memory)->nonce != offer.nonce)
    return runError(path + " is not the memory that was offered");
  ::close(std::exchange(region->file, -1));
  return region;
}

Status SharedRegion::map() {
  void *at = ::mmap(nullptr, regionHeaderBytes + static_cast<size_t>(slots) * sizeof(Ring), PROT_READ | PROT_WRITE,
                    MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return runError(fmt::format("mmap of shared memory: {}", std::strerror(errno)));
  memory = static_cast<std::byte *>(at);
  return Status::ok();
}

SharedRegion::~SharedRegion() {
  if (memory) ::munmap(memory, regionHeaderBytes + static_cast<size_t>(slots) * sizeof(Ring));
  if (file >= 0) ::close(file);
}

SharedOffer SharedRegion::offer(int slot) const {
  return {::getpid(), file, slot, slots, reinterpret_cast<Header *>(memory)->nonce};
}

WakeSignal &SharedRegion::signal() const { return reinterpret_cast<Header *>(memory)->signal; }

SharedRegion::Ring &SharedRegion::ring(int slot) const {
  return *reinterpret_cast<Ring *>(memory + regionHeaderBytes + static_cast<size_t>(slot) * sizeof(Ring));
}

SharedLink::SharedLink(int socket, std::shared_ptr<SharedRegion> ownRegion, int inSlot,
                       std::shared_ptr<SharedRegion> theirRegion, int outSlot)
    : fd(socket), own(std::move(ownRegion)), theirs(std::move(theirRegion)), in(own->ring(inSlot)),
      out(theirs->ring(outSlot)) {}

SharedLink::~SharedLink() {
  shutdown();
  ::close(fd);
}

void SharedLink::shutdown() {
  ::shutdown(fd, SHUT_RDWR);
  out.isClosed.store(1, std::memory_order_release);
  theirs->signal().notify();
}

// A process that was killed closes nothing but its socket.
void SharedLink::checkEnd() { isOver = isOver || hasEnded(fd); }

// The other side's position is a number of another process: never more than the ring is taken or given.
ssize_t SharedLink::send(std::span<const iovec> parts) {
  if (isOver || in.isClosed.load(std::memory_order_acquire)) return -1;
  const uint64_t begin = out.written.load(std::memory_order_relaxed);
  uint64_t at = begin;
  const uint64_t used = begin - out.read.load(std::memory_order_acquire);
  uint64_t room = used > ringBytes ? 0 : std::min(ringBytes - used, copyBytes);
  for (const iovec &part : parts)
    for (size_t done = 0; done < part.iov_len && room > 0;) {
      const uint64_t place = at % ringBytes, count = std::min({room, part.iov_len - done, ringBytes - place});
      std::memcpy(out.bytes + place, static_cast<const std::byte *>(part.iov_base) + done, count);
      at += count, done += count, room -= count;
    }
  if (at == begin) return 0;
  out.written.store(at, std::memory_order_release);
  theirs->signal().notify();
  return static_cast<ssize_t>(at - begin);
}

ssize_t SharedLink::receive(std::span<const iovec> parts) {
  const uint64_t begin = in.read.load(std::memory_order_relaxed);
  uint64_t at = begin;
  uint64_t there = std::min({in.written.load(std::memory_order_acquire) - begin, ringBytes, copyBytes});
  if (there == 0) {
    const bool isClosed = isOver || in.isClosed.load(std::memory_order_acquire);
    return isClosed && in.written.load(std::memory_order_acquire) == begin ? -1 : 0;
  }
  for (const iovec &part : parts)
    for (size_t done = 0; done < part.iov_len && there > 0;) {
      const uint64_t place = at % ringBytes, count = std::min({there, part.iov_len - done, ringBytes - place});
      std::memcpy(static_cast<std::byte *>(part.iov_base) + done, in.bytes + place, count);
      at += count, done += count, there -= count;
    }
  in.read.store(at, std::memory_order_release);
  theirs->signal().notify();
  return static_cast<ssize_t>(at - begin);
}

uint64_t sharingDomain() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char space[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/ns/pid", space, sizeof space);
  if (boot.empty() || length <= 0) return 0;
  uint64_t number = 0;
  std::memcpy(&number, Digest().add(boot).add(std::string_view(space, static_cast<size_t>(length))).finish().data(),
              sizeof number);
  return number;
}

} // namespace cleave::runtime
