// A strided copy as rectangles that cuMemcpy2D moves, and the collectives' copies made of them.
//
//   rectanglesOf({2, 3, 4}, {24, 4, 1}, {12, 4, 1}, 4)   // one: 2 rows of 48 bytes, 96 bytes apart, then 48 apart
#pragma once
#include "runtime/engine/device/cuda/cuda_device.h"
#include <vector>

namespace cleave::runtime::cuda {

struct Rectangle {
  int64_t source = 0, target = 0; // bytes from the beginnings
  int64_t width = 0, height = 1;  // bytes, rows
  int64_t sourcePitch = 0, targetPitch = 0;
};
std::vector<Rectangle> rectanglesOf(const std::vector<int64_t> &sizes, const std::vector<int64_t> &sourceStrides,
                                    const std::vector<int64_t> &targetStrides, int64_t element);
Status copyRectangle(const Gpu &gpu, const Rectangle &rectangle, Address source, Address target, Stream stream);

} // namespace cleave::runtime::cuda
