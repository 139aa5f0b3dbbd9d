#include "runtime/train/data/permutation.h"
#include "runtime/base/philox.h"
#include <bit>

namespace cleave::runtime {
namespace {

constexpr uint64_t permutationStream = 0x73616d70; // apart from the streams of dropout and initial weights

// All bits of the result depend on all of `value`: MurmurHash3's finalizer.
uint64_t mix(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdU;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53U;
  return value ^ value >> 33;
}

} // namespace

Permutation::Permutation(int64_t given, uint64_t seed, uint64_t epoch) : size(static_cast<uint64_t>(given)) {
  const int bits = std::bit_width(size - 1);
  lowBits = (bits + 1) / 2;
  low = (uint64_t(1) << lowBits) - 1;
  high = (uint64_t(1) << bits / 2) - 1;
  for (size_t round = 0; round < rounds; ++round) {
    const auto words = philoxWords(seed, epoch, permutationStream, round);
    keys[round] = uint64_t(words[0]) << 32 | words[1];
  }
}

int64_t Permutation::operator()(int64_t place) const {
  auto value = static_cast<uint64_t>(place);
  do {
    uint64_t left = value >> lowBits, right = value & low;
    for (size_t round = 0; round < rounds; round += 2) {
      left ^= mix(right ^ keys[round]) & high;
      right ^= mix(left ^ keys[round + 1]) & low;
    }
    value = left << lowBits | right;
  } while (value >= size);
  return static_cast<int64_t>(value);
}

} // namespace cleave::runtime
