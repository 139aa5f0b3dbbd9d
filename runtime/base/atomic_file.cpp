#include "runtime/base/atomic_file.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <random>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

// Standard output may be a file that others hold open: it keeps its place.
bool isStream(const std::string &path, const struct stat &known) {
  return !S_ISREG(known.st_mode) || path.starts_with("/dev/std") || path.starts_with("/dev/fd/") ||
         path.starts_with("/proc/");
}

} // namespace

AtomicFile::AtomicFile(AtomicFile &&other) noexcept
    : path(std::move(other.path)), place(std::move(other.place)), partial(std::move(other.partial)),
      descriptor(std::exchange(other.descriptor, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor < 0) return;
  ::close(descriptor);
  if (!partial.empty()) ::unlink(partial.c_str());
}

Status AtomicFile::failed() const {
  return inputError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

Result<AtomicFile> AtomicFile::create(const std::string &path) {
  AtomicFile file(path);
  struct stat known{};
  const bool exists = ::stat(path.c_str(), &known) == 0;
  if (exists && isStream(path, known)) {
    file.descriptor = ::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (file.descriptor < 0) return file.failed();
    return file;
  }
  std::error_code unknown;
  const fs::path real = exists ? fs::canonical(path, unknown) : fs::path(path);
  file.place = unknown ? path : real.string();
  constexpr size_t longest = 200; // of a name's 255 bytes
  std::random_device random;      // processes of other machines may have this one's number
  const std::string name = real.filename().string().substr(0, longest);
  file.partial = (real.parent_path() / fmt::format("{}.{}-{:08x}.partial", name, ::getpid(), random())).string();
  file.descriptor = ::open(file.partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file.descriptor < 0 || (exists && ::fchmod(file.descriptor, known.st_mode & 0777) != 0)) return file.failed();
  return file;
}

Status AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min<size_t>(bytes.size(), size_t(1) << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed();
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return Status::ok();
}

Status AtomicFile::commit(bool isDurable) {
  if (!partial.empty() && ((isDurable && ::fsync(descriptor) != 0) || ::rename(partial.c_str(), place.c_str()) != 0))
    return failed();
  ::close(std::exchange(descriptor, -1));
  return Status::ok();
}

Status writeFileAtomically(std::string_view bytes, const std::string &path) {
  CLEAVE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  CLEAVE_RETURN_IF_ERROR(file.write(bytes));
  return file.commit();
}

} // namespace cleave::runtime
