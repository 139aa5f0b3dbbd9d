// In which order samples are taken: the semantics of PyTorch's DistributedSampler, with our own generator.
//
// Every epoch is a permutation of all samples by (seed, epoch), or their order without shuffling. The global batch of a
// step is the next run of it; how the batch is cut among devices is the plan's business. At the epoch's end the last
// batch is padded with samples from the epoch's beginning (dropLast: the rest is left out instead).
//
//     Sampler sampler(10, {.batch = 4, .seed = 7});     // 3 batches an epoch, the last with 2 repeated samples
//     sampler.next(4);  sampler.next(4);  sampler.next(4);  // epoch 0;   the next call begins epoch 1
//     SamplerState state = sampler.state();  ...  sampler.restore(state);     // goes on as if never stopped
#pragma once
#include "runtime/base/status.h"
#include "runtime/train/data/blend.h"
#include "runtime/train/data/permutation.h"
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
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
  // Of a mixture: samples come from its sources by weight (blend.h), and each source has epochs of its own, one behind
  // the other. An epoch of all is as many samples as there are. Empty: no mixture.
  std::vector<Share> shares = {};
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
  // Samples that an epoch has twice, so that its last batch is whole.
  int64_t repeatedSamples() const { return mixture ? 0 : std::max<int64_t>(0, perEpoch - size); }
  SamplerState state() const { return now; }
  // The number of the next sample among all that are taken from the first epoch on.
  uint64_t turn() const { return now.epoch * static_cast<uint64_t>(perEpoch) + static_cast<uint64_t>(now.position); }
  Status restore(SamplerState state); // Error: a position beyond the epoch (other data than before)

private:
  // The samples of one source, or of all, in the order of an epoch.
  struct Source {
    int64_t first, samples; // of all
    uint64_t epoch;
    std::optional<Permutation> order; // none: as they stand
  };
  void begin(uint64_t epoch);
  void group();
  int64_t sampleAt(Source &source, uint64_t epoch, int64_t place) const;
  int64_t take();

  int64_t size, perEpoch;
  SamplerOptions options;
  SamplerState now;
  std::vector<Source> sources;  // one, or those of a mixture
  std::optional<Blend> mixture; // none: one source
  std::vector<int64_t> grouped; // the epoch's order where batches are of one group
  std::vector<int64_t> taken;   // by the last call
};

} // namespace cleave::runtime
