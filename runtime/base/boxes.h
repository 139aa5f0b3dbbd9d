// Boxes of dense row-major tensors: the slice that a device holds, the part that a file has.
//
//   // rows 2 and 3 of an 8x4 tensor, which another one holds as its first rows: one run of 8 elements
//   forEachRun({2, 4}, {{8, 4}, {2, 0}}, {{2, 4}}, body);     // body(8, 0, 8)
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cleave::runtime {

// In each dimension where it begins and its size.
struct Shard {
  std::vector<int64_t> begin, size;
};

// Strides in elements.
std::vector<int64_t> rowMajorStrides(const std::vector<int64_t> &shape);
bool isInside(const Shard &box, std::span<const int64_t> shape);
// What both have of one tensor; none: nothing, or their dimensions are not as many.
std::optional<Shard> intersection(const Shard &a, const Shard &b);

// A tensor, and where a box begins in it.
struct BoxPlace {
  std::span<const int64_t> shape, begin = {}; // none: at its beginning
  // Of the element at this index of the box, whose last indices are 0 where they are missing; in elements.
  int64_t offset(std::span<const int64_t> index = {}) const {
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d)
      at = at * shape[d] + (d < begin.size() ? begin[d] : 0) + (d < index.size() ? index[d] : 0);
    return at;
  }
};

// Calls body(offset in a, offset in b, run), all in elements, for every run of a box that is contiguous in both.
template <typename Body>
void forEachRun(std::span<const int64_t> size, const BoxPlace &a, const BoxPlace &b, Body &&body) {
  // Trailing dimensions that the box has whole of both, and the one before them, are contiguous.
  size_t split = size.size();
  int64_t run = 1, runs = 1;
  while (split > 0) {
    run *= size[--split];
    if (size[split] != a.shape[split] || size[split] != b.shape[split]) break;
  }
  for (int64_t outer : size.first(split)) runs *= outer;
  if (run == 0) return;
  std::vector<int64_t> index(split, 0);
  for (int64_t i = 0; i < runs; ++i) {
    body(a.offset(index), b.offset(index), run);
    for (size_t d = split; d-- > 0;) {
      if (++index[d] < size[d]) break;
      index[d] = 0;
    }
  }
}

// Copies a box from one tensor to another, of elements of so many bytes.
void copyBox(std::span<const int64_t> size, const BoxPlace &source, const std::byte *from, const BoxPlace &target,
             std::byte *to, int64_t elementBytes);

} // namespace cleave::runtime
