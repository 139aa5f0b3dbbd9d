#include "runtime/base/mapped_file.h"
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace cleave::runtime {
namespace {

// Held while the list of files is read or changed, also by the handler: nobody touches a file's bytes meanwhile.
std::atomic_flag isListBusy;
struct ListGuard {
  ListGuard() {
    while (isListBusy.test_and_set(std::memory_order_acquire)) ::sched_yield();
  }
  ~ListGuard() { isListBusy.clear(std::memory_order_release); }
};
MappedFile *firstFile = nullptr;
std::string lostFile; // that is no longer mapped
struct sigaction otherHandler;

} // namespace

void (*MappedFile::tellLoss)(const char *path) = nullptr;

// Runs in the signal's handler.
bool MappedFile::fillIn(const char *address) {
  ListGuard guard;
  MappedFile *file = firstFile;
  while (file && (address < file->data || address >= file->data + file->size)) file = file->next;
  if (!file) return false;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  char *from = const_cast<char *>(file->data) + static_cast<size_t>(address - file->data) / page * page;
  const auto bytes = static_cast<size_t>(file->data + file->size - from);
  if (tellLoss) tellLoss(file->path.c_str());
  file->hasLost = true;
  return ::mmap(from, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

void MappedFile::onBusError(int signal, siginfo_t *info, void *context) {
  const int kept = errno;
  const bool isOurs = info->si_code == BUS_ADRERR && fillIn(static_cast<const char *>(info->si_addr));
  errno = kept;
  if (isOurs) return;
  if ((otherHandler.sa_flags & SA_SIGINFO) != 0) return otherHandler.sa_sigaction(signal, info, context);
  if (otherHandler.sa_handler != SIG_DFL && otherHandler.sa_handler != SIG_IGN) return otherHandler.sa_handler(signal);
  ::sigaction(signal, &otherHandler, nullptr);
  ::raise(signal);
}

Status MappedFile::intact() {
  ListGuard guard;
  std::string lost = std::exchange(lostFile, {});
  for (const MappedFile *file = firstFile; file && lost.empty(); file = file->next)
    if (file->hasLost) lost = file->path;
  if (lost.empty()) return Status::ok();
  return runError(lost + ": has become shorter, or unreadable, while it was read");
}

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO would wait for a writer
  if (descriptor < 0) return inputError(path + ": cannot be opened: " + std::strerror(errno));
  struct stat status = {};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return inputError(path + ": is not a regular file");
  }
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->size = static_cast<size_t>(status.st_size);
  if (file->size > 0) {
    void *address = mmap(nullptr, file->size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      int failure = errno;
      ::close(descriptor);
      return inputError(path + ": cannot be mapped into memory: " + std::strerror(failure));
    }
    file->data = static_cast<const char *>(address);
    file->path = path;
    static const bool isWatched = [] {
      struct sigaction own{};
      own.sa_sigaction = onBusError;
      own.sa_flags = SA_SIGINFO | SA_ONSTACK;
      return ::sigaction(SIGBUS, &own, &otherHandler) == 0;
    }();
    (void)isWatched;
    ListGuard guard;
    file->next = firstFile;
    if (firstFile) firstFile->before = file.get();
    firstFile = file.get();
  }
  ::close(descriptor);
  return file;
}

void MappedFile::releasePages() const {
  if (data) madvise(const_cast<char *>(data), size, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (!data) return;
  {
    ListGuard guard;
    (before ? before->next : firstFile) = next;
    if (next) next->before = before;
    if (hasLost) lostFile = path;
  }
  munmap(const_cast<char *>(data), size);
}

} // namespace cleave::runtime
