// The choices that make one input: read from the fuzzer's bytes, so that a small change of the bytes is a small change
// of the input; random numbers that follow from the bytes once these are used up. The same on every machine.
//
//   Chance chance(bytes);
//   if (chance.once(10)) size = chance.pick(extremes);
#pragma once
#include <cstdint>
#include <iterator>
#include <random>
#include <span>

namespace cleave::fuzz {

class Chance {
public:
  explicit Chance(uint64_t seed) : engine(seed) {}
  explicit Chance(std::span<const uint8_t> bytes) : rest(bytes), engine(hash(bytes)) {}

  uint64_t below(uint64_t count) { return count > 1 ? next(count <= 256 ? 1 : 8) % count : 0; }
  bool once(uint64_t in) { return below(in) == 0; } // true once in so many times
  template <typename List> auto pick(const List &list) { return *(std::begin(list) + below(std::size(list))); }

private:
  static uint64_t hash(std::span<const uint8_t> bytes) { // FNV-1a
    uint64_t value = 0xcbf29ce484222325;
    for (uint8_t byte : bytes) value = (value ^ byte) * 0x100000001b3;
    return value;
  }
  uint64_t next(size_t bytes) {
    if (rest.size() < bytes) return engine();
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t(rest[i]) << 8 * i;
    rest = rest.subspan(bytes);
    return value;
  }

  std::span<const uint8_t> rest;
  std::mt19937_64 engine;
};

} // namespace cleave::fuzz
