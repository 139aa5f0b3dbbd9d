// In which order samples are taken: the semantics of PyTorch's DistributedSampler, with our own generator.
//
// Every epoch is a permutation of all samples by (seed, epoch), or their order without shuffling. The global batch of a
// step is the next run of it; how the batch is cut among devices is the plan's business. At the epoch's end the last
// batch is padded with samples from the epoch's beginning (dropLast: the rest is left out instead).
//
//     Sampler sampler(10, {.batch = 4, .seed = 7});     // 3 batches an epoch, the last with 2 repeated samples
//     sampler.next(4);  sampler.next(4);  sampler.next(4);  // epoch 0;   the next call begins epoch 1
//     sampler.setBatch(8);                              // the steps from here on: the order goes on where it is
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
  int64_t batch = 1; // samples a step, until setBatch(): an epoch is padded to whole steps
  uint64_t seed = 0;
  bool shuffle = true;
  bool dropLast = false;
  bool lastIsSmaller = false; // an epoch's last batch counts its own samples only; filled with the first of them
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
  int64_t batch = 0;    // of the step before; 0: of a snapshot that does not tell it, always the sampler's
  uint64_t taken = 0;   // samples of all epochs; not told, either
};

class Sampler {
public:
  Sampler(int64_t size, SamplerOptions options); // size >= 1
  // The indices of a microbatch of so many places: the next `wanted` of the batch, and in the rest its first. All that are
  // wanted of a batch are as many as it has. Valid until the next call.
  std::span<const int64_t> next(int64_t count, int64_t wanted);
  std::span<const int64_t> next(int64_t count) { return next(count, count); }
  // The steps from the next one on have so many samples. Not with groupOf.
  void setBatch(int64_t samples) { batch = samples; }
  // How many of those that next() gave last count, the leading ones; others fill the batch.
  int64_t counted() const { return counting; }

  // Of an epoch of batches of one size, padded or cut to whole ones.
  int64_t samplesPerEpoch() const { return size - leftOver() + (pads() ? batch : 0); }
  // Samples that such an epoch has twice, so that its last batch is whole.
  int64_t repeatedSamples() const { return mixture || options.lastIsSmaller || !pads() ? 0 : batch - leftOver(); }
  // How many of `steps` steps the rest of an epoch fills, of which `left` samples are left.
  int64_t stepsOf(int64_t left, int64_t steps) const {
    return std::min(steps, options.dropLast ? left / batch : (left + batch - 1) / batch);
  }
  SamplerState state() const { return now; }
  // The number of the next sample among all that are taken from the first epoch on.
  uint64_t turn() const { return now.taken; }
  // Error: a position beyond the epoch (other data than before); groupOf and another batch in the middle of an epoch.
  Status restore(SamplerState state);

private:
  // The samples of one source, or of all, in the order of an epoch.
  struct Source {
    int64_t first, samples; // of all
    uint64_t epoch;
    std::optional<Permutation> order; // none: as they stand
  };
  int64_t leftOver() const { return size % batch; }
  bool pads() const { return leftOver() > 0 && (!options.dropLast || size < batch); }
  bool isOver() const { // no further batch of this epoch
    return options.dropLast ? now.position > 0 && now.position + batch > size : now.position >= size;
  }
  void begin(uint64_t epoch);
  void group();
  int64_t sampleAt(Source &source, uint64_t epoch, int64_t place) const;
  int64_t take();

  int64_t size, batch;
  int64_t open = 0; // samples of the batch under way that are not taken yet
  int64_t counting = 0, filler = 0;
  SamplerOptions options;
  SamplerState now;
  std::vector<Source> sources;  // one, or those of a mixture
  std::optional<Blend> mixture; // none: one source
  std::vector<int64_t> grouped; // the epoch's order where batches are of one group
  std::vector<int64_t> taken;   // by the last call
};

} // namespace cleave::runtime
