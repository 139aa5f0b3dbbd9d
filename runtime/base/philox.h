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
#include <cstddef>
#include <cstdint>

namespace cleave::runtime {

// The ten rounds on `lanes` counters, word by word, which the compiler does as vectors.
template <size_t lanes>
[[gnu::always_inline]] inline void philoxRounds(uint32_t (&words)[4][lanes], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < lanes; ++i) {
      uint64_t product0 = uint64_t(0xD2511F53u) * words[0][i], product1 = uint64_t(0xCD9E8D57u) * words[2][i];
      words[0][i] = uint32_t(product1 >> 32) ^ words[1][i] ^ key0;
      words[1][i] = uint32_t(product1);
      words[2][i] = uint32_t(product0 >> 32) ^ words[3][i] ^ key1;
      words[3][i] = uint32_t(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

template <size_t lanes>
[[gnu::always_inline]] inline void philoxCount(uint32_t (&words)[4][lanes], uint64_t step, uint64_t stream,
                                               uint64_t index) {
  for (size_t i = 0; i < lanes; ++i) {
    words[0][i] = uint32_t(index + i);
    words[1][i] = uint32_t((index + i) >> 32 & 0xffff) | uint32_t(step >> 32) << 16;
    words[2][i] = uint32_t(step);
    words[3][i] = uint32_t(stream);
  }
}

inline std::array<uint32_t, 4> philoxWords(uint64_t seed, uint64_t step, uint64_t stream, uint64_t index) {
  uint32_t words[4][1];
  philoxCount(words, step, stream, index);
  philoxRounds(words, uint32_t(seed), uint32_t(seed >> 32));
  return {words[0][0], words[1][0], words[2][0], words[3][0]};
}

inline float philoxUniform(uint64_t seed, uint64_t step, uint64_t stream, uint64_t index) {
  return float(philoxWords(seed, step, stream, index)[0] >> 8) * 0x1p-24f;
}

// philoxUniform() of `index` and those that follow it.
template <size_t lanes>
[[gnu::always_inline]] inline void philoxUniforms(uint64_t seed, uint64_t step, uint64_t stream, uint64_t index,
                                                  std::array<float, lanes> &uniforms) {
  uint32_t words[4][lanes];
  philoxCount(words, step, stream, index);
  philoxRounds(words, uint32_t(seed), uint32_t(seed >> 32));
  for (size_t i = 0; i < lanes; ++i) uniforms[i] = float(words[0][i] >> 8) * 0x1p-24f;
}

} // namespace cleave::runtime
