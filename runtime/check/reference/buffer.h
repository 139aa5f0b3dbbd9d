// The memory of a host tensor. Its bytes are not set when it is made: an operation that writes all of its result need
// not clear it first.
//
//   ReusedBuffers reused;                                   // for the time of a comparison
//   Buffer a(1 << 20); a = Buffer();                        // kept
//   Buffer b(1 << 20);                                      // the memory of a: its pages are there already
#pragma once
#include <cstddef>
#include <utility>

namespace cleave::runtime {

class Buffer {
public:
  Buffer() = default;
  explicit Buffer(size_t bytes);
  Buffer(const Buffer &other);
  Buffer(Buffer &&other) noexcept { swap(other); }
  Buffer &operator=(Buffer other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  std::byte *data() { return memory; }
  const std::byte *data() const { return memory; }
  size_t size() const { return bytes; }
  bool empty() const { return bytes == 0; }
  std::byte *begin() { return memory; }
  std::byte *end() { return memory + bytes; }
  const std::byte *begin() const { return memory; }
  const std::byte *end() const { return memory + bytes; }
  std::byte &operator[](size_t at) { return memory[at]; }
  const std::byte &operator[](size_t at) const { return memory[at]; }
  bool operator==(const Buffer &other) const;

private:
  void swap(Buffer &other) noexcept {
    std::swap(memory, other.memory);
    std::swap(bytes, other.bytes);
  }
  std::byte *memory = nullptr;
  size_t bytes = 0;
};

// While one lives, the memory of released buffers serves later ones of the same size. In use and kept together are
// never more than were in use at once before.
class ReusedBuffers {
public:
  ReusedBuffers();
  ~ReusedBuffers();
  ReusedBuffers(const ReusedBuffers &) = delete;
  static size_t keptBytes(); // that no buffer uses
};

} // namespace cleave::runtime
