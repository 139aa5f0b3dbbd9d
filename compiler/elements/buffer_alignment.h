// Where buffers begin in a device's memory: plans lay them so, and estimates count them so. Free of MLIR.
//
//   alignUp(100) == 128
#pragma once
#include <cstdint>

namespace cleave {

// Every offset in an arena is a multiple of this many bytes.
constexpr int64_t bufferAlignment = 64;

constexpr int64_t alignUp(int64_t bytes) { return (bytes + bufferAlignment - 1) / bufferAlignment * bufferAlignment; }

} // namespace cleave
