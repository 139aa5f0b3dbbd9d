// A permutation of [0, size) by (seed, epoch) that needs no array: a Feistel network over the least power of two that
// holds `size`, walked until it is below it (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
//
//     Permutation order(1000, 7, 0);
//     order(0), order(1), ...      // each number below 1000 once
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace cleave::runtime {

class Permutation {
public:
  Permutation(int64_t size, uint64_t seed, uint64_t epoch); // size >= 1
  int64_t operator()(int64_t place) const;                  // place in [0, size)

private:
  static constexpr size_t rounds = 12;
  uint64_t size;
  int lowBits = 0;            // the value is two halves: `lowBits`, and above them as many or one less
  uint64_t low = 0, high = 0; // masks of the halves
  std::array<uint64_t, rounds> keys;
};

} // namespace cleave::runtime
