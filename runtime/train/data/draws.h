// Random numbers of one sample or batch of a training, by its number: every process, every split and a resumed run draw
// the same (philox.h).
//
//     Draws draws(seed, stream, turn);
//     draws.uniform(), draws.below(6)       // [0, 1); 0 to 5
#pragma once
#include "runtime/base/philox.h"

namespace cleave::runtime {

constexpr uint64_t augmentStream = 0x61756720, mixingStream = 0x6d697820; // apart from dropout's and others

class Draws {
public:
  Draws(uint64_t seed, uint64_t stream, uint64_t turn) : seed(seed), stream(stream), turn(turn) {}
  double uniform() {
    const auto words = philoxWords(seed, turn, stream, next++);
    return static_cast<double>((uint64_t(words[0]) << 32 | words[1]) >> 11) * 0x1p-53;
  }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  int64_t below(int64_t bound) { return static_cast<int64_t>(uniform() * static_cast<double>(bound)); }

private:
  uint64_t seed, stream, turn, next = 0;
};

} // namespace cleave::runtime
