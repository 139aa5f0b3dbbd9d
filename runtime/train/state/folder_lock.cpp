#include "runtime/train/state/folder_lock.h"
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

namespace cleave::runtime {

FolderLock::~FolderLock() {
  if (descriptor >= 0) ::close(descriptor);
}

Status FolderLock::take(const std::string &folder, double seconds) {
  using Clock = std::chrono::steady_clock;
  descriptor = ::open((folder + "/" + fileName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return inputError(fmt::format("{}: cannot be written: {}", folder, std::strerror(errno)));
  const Clock::time_point begun = Clock::now();
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return Status::ok();
    if (std::chrono::duration<double>(Clock::now() - begun).count() > seconds) {
      char owner[128] = {};
      const ssize_t length = ::pread(descriptor, owner, sizeof owner - 1, 0);
      return inputError(fmt::format("{}: another run writes here{}; give --snapshot another folder", folder,
                                    length > 0 ? fmt::format(" ({})", owner) : ""));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  held = true;
  char host[64] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string owner = fmt::format("process {} on {}", ::getpid(), host);
  // For people only: without it the lock holds as well.
  if (::ftruncate(descriptor, 0) == 0) (void)!::pwrite(descriptor, owner.data(), owner.size(), 0);
  return Status::ok();
}

} // namespace cleave::runtime
