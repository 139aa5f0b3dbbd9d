// Copies of 16-bit and 8-bit tensors in f32 and back, around primitives for which the CPU has no such products: the
// same exact products of rounded operands, summed in f32 and rounded once.
//
//   auto in = std::make_unique<Conversion>(plan::F16, Conversion::Widen, source, at, sizes, strides, wideStrides);
//   in->place(scratch);  in->run();       // f32 at offset `at` of the scratch
#pragma once
#include "runtime/engine/device/cpu/commands.h"
#include <vector>

namespace cleave::runtime {

// Does oneDNN multiply elements of this type here without widening them itself?
bool multipliesNatively(plan::DType dtype);

// Adjacent elements of F32 or a narrower floating type, as f32 and back.
void widenElements(plan::DType dtype, const std::byte *from, float *to, int64_t count);
void narrowElements(plan::DType dtype, const float *from, std::byte *to, int64_t count);

class Conversion final : public ScratchCommand {
public:
  enum Direction { Widen, Narrow };
  // A tensor of `dtype` (F16, BF16, F8E4M3, F8E5M2) at `address` and its f32 copy `scratchOffset` bytes into the
  // scratch, with their strides in elements. A dimension with stride 0 in both is one element.
  Conversion(plan::DType dtype, Direction direction, std::byte *address, size_t scratchOffset,
             std::vector<int64_t> sizes, std::vector<int64_t> strides, std::vector<int64_t> wideStrides);
  void place(const Scratch &scratch) override { wide = reinterpret_cast<float *>(scratch.base + offset); }
  Status run() override;

private:
  struct Dimension {
    int64_t size, narrow, wide; // elements; strides
  };
  void convert(int64_t from, int64_t to, int64_t count) const; // elements along the row, from places in both

  const plan::DType dtype;
  const Direction direction;
  std::byte *const narrow;
  const size_t offset;
  float *wide = nullptr;
  std::vector<Dimension> outer;
  Dimension row{1, 1, 1};
};

// Commands that are one: widen, compute, narrow.
class ScratchSequence final : public ScratchCommand {
public:
  void place(const Scratch &scratch) override {
    for (auto &part : parts) part->place(scratch);
  }
  Status run() override {
    for (auto &part : parts) CLEAVE_RETURN_IF_ERROR(part->run());
    return Status::ok();
  }
  std::vector<std::unique_ptr<ScratchCommand>> parts;
};

} // namespace cleave::runtime
