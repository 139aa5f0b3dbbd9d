#include "runtime/base/mapped_file.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cleave::runtime {

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
  }
  ::close(descriptor);
  return file;
}

void MappedFile::releasePages() const {
  if (data) madvise(const_cast<char *>(data), size, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data) munmap(const_cast<char *>(data), size);
}

} // namespace cleave::runtime
