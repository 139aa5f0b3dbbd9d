#include "test/fuzz/input_file.h"
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

namespace cleave::fuzz {
namespace {

void replace(int file, std::string_view bytes) {
  if (ftruncate(file, 0) != 0 || pwrite(file, bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()))
    throw std::runtime_error("the input cannot be written into memory");
}

} // namespace

std::string fileOf(std::string_view bytes) {
  static const int memory = memfd_create("input", MFD_CLOEXEC);
  replace(memory, bytes);
  return fmt::format("/proc/self/fd/{}", memory);
}

InputFolder::InputFolder() : folder(fmt::format("/dev/shm/cleave-fuzz-{}/", getpid())) {
  std::filesystem::create_directories(folder);
}

InputFolder::~InputFolder() {
  std::error_code failure;
  std::filesystem::remove_all(folder, failure);
}

void InputFolder::write(const std::string &name, std::string_view bytes) {
  const std::string file = path(name);
  int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  }
  replace(descriptor, bytes);
  ::close(descriptor);
}

void InputFolder::remove(const std::string &name) { ::unlink(path(name).c_str()); }

std::vector<std::string> splitParts(std::span<const uint8_t> input, size_t count) {
  std::vector<std::string> parts(count);
  for (size_t i = 0; i < count; ++i) {
    uint32_t length = 0;
    bool isLast = i + 1 == count || input.size() < sizeof length;
    if (!isLast) {
      std::memcpy(&length, input.data(), sizeof length);
      input = input.subspan(sizeof length);
    }
    const size_t size = isLast ? input.size() : std::min<size_t>(length, input.size());
    parts[i].assign(reinterpret_cast<const char *>(input.data()), size);
    input = input.subspan(size);
  }
  return parts;
}

std::string joinParts(std::span<const std::string> parts) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto length = static_cast<uint32_t>(parts[i].size());
    if (i + 1 < parts.size()) joined.append(reinterpret_cast<const char *>(&length), sizeof length);
    joined += parts[i];
  }
  return joined;
}

} // namespace cleave::fuzz
