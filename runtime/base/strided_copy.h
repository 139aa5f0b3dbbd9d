// An N-dimensional strided copy, analysed once and run often: transposes, slices, shards, joined parts.
//
//   StridedCopy copy({4, 8}, {1, 4}, {8, 1}, 4);   // 4-byte elements, a 4x8 transpose of an 8x4 source
//   copy.run(source, target);
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cleave::runtime {

class StridedCopy {
public:
  StridedCopy() = default;
  // sizes, strides in elements, bytes of one element (1, 2, 4 or 8).
  StridedCopy(std::vector<int64_t> sizes, std::vector<int64_t> sourceStrides, std::vector<int64_t> targetStrides,
              int64_t elementBytes);
  // Source and target must not overlap.
  void run(const std::byte *source, std::byte *target) const;
  int64_t bytes() const { return totalBytes; }

private:
  // The outer dimensions, and an inner tile that is contiguous bytes, a row of elements, or a 2-D transpose.
  struct Dim {
    int64_t size, source, target; // bytes
  };
  std::vector<Dim> outer;
  enum { Contiguous, Row, Transpose } inner = Contiguous;
  int64_t width = 0;     // bytes (Contiguous), else elements along the target's inner dimension
  int64_t rowSource = 0; // bytes between those elements in the source
  int64_t rowTarget = 0;
  int64_t height = 1;       // Transpose: size of the source's contiguous dimension
  int64_t heightTarget = 0; // bytes between its elements in the target
  int64_t element = 1;
  int64_t outerCount = 1, totalBytes = 0;
  void runTile(const std::byte *source, std::byte *target) const;
};

} // namespace cleave::runtime
