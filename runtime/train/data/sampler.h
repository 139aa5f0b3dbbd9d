// In which order samples are taken: the semantics of PyTorch's DistributedSampler, with our own generator.
//
// Every epoch is a permutation of all samples by (seed, epoch), or their order without shuffling. The global batch of a
// step is the next run of it; how the batch is cut among devices is the plan's business. At the epoch's end the last
// batch is padded with samples from the epoch's beginning (drop_last: the rest is left out instead).
//
//     Sampler sampler(10, {.batch = 4, .seed = 7});     // 3 batches an epoch, the last with 2 repeated samples
//     sampler.next(4);  sampler.next(4);  sampler.next(4);  // epoch 0;   the next call begins epoch 1
//     SamplerState state = sampler.state();  ...  sampler.restore(state);     // goes on as if never stopped
#pragma once
#include "runtime/base/status.h"
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace cleave::runtime {

struct SamplerOptions {
  int64_t batch = 1; // samples a step: an epoch is padded to whole steps
  uint64_t seed = 0;
  bool shuffle = true;
  bool dropLast = false;
  // Where steps have lengths of their own: which of them a sample needs. A shuffled epoch's batches have samples of
  // one, as far as there are enough; those left over go with the next longer ones. Null: all samples are alike.
  std::function<size_t(int64_t sample)> groupOf = {};
};

struct SamplerState {
  uint64_t epoch = 0;
  int64_t position = 0; // samples of the epoch already taken
};

class Sampler {
public:
  Sampler(int64_t size, SamplerOptions options); // size >= 1
  // The next `count` sample indices; count divides batch (a microbatch). Valid until the next call.
  std::span<const int64_t> next(int64_t count);

  int64_t samplesPerEpoch() const { return perEpoch; } // padded or cut to whole steps
  SamplerState state() const { return now; }
  Status restore(SamplerState state); // Error: a position beyond the epoch (other data than before)

private:
  void begin(uint64_t epoch);
  void group();

  int64_t size, perEpoch;
  SamplerOptions options;
  SamplerState now;
  std::vector<int64_t> order; // of the current epoch, padded
};

} // namespace cleave::runtime
