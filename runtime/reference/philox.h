// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): the counter-based generator of
// dropout and of initial weights. A value depends only on (seed, step, microbatch, stream, global element index), so
// that every split of a tensor over devices draws the same numbers. Code generation emits the same arithmetic.
//
//   key     = {seed low 32, seed high 32}
//   counter = {index low 32, (index >> 32 & 0xffff) | microbatch << 16, step low 32, stream low 32}
//   uniform = (word 0 >> 8) / 2^24          in [0, 1), exact in f32
//
// `step` of the public functions is RandomUniform's second key element: the step in the low 32 bits, the microbatch
// number above.
#pragma once
#include <array>
#include <cstdint>

namespace cleave::runtime {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = uint64_t(0xD2511F53u) * counter[0], product1 = uint64_t(0xCD9E8D57u) * counter[2];
    counter = {uint32_t(product1 >> 32) ^ counter[1] ^ key0, uint32_t(product1),
               uint32_t(product0 >> 32) ^ counter[3] ^ key1, uint32_t(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

inline std::array<uint32_t, 4> philoxWords(uint64_t seed, uint64_t step, uint64_t stream, uint64_t index) {
  uint32_t second = uint32_t(index >> 32 & 0xffff) | uint32_t(step >> 32) << 16;
  return philox4x32({uint32_t(index), second, uint32_t(step), uint32_t(stream)}, uint32_t(seed), uint32_t(seed >> 32));
}

inline float philoxUniform(uint64_t seed, uint64_t step, uint64_t stream, uint64_t index) {
  return float(philoxWords(seed, step, stream, index)[0] >> 8) * 0x1p-24f;
}

} // namespace cleave::runtime
