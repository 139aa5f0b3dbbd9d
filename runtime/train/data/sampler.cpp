#include "runtime/train/data/sampler.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace cleave::runtime {

Sampler::Sampler(int64_t size, SamplerOptions given) : size(size), batch(given.batch), options(std::move(given)) {
  if (options.shares.empty()) sources.push_back({0, size, 0, {}});
  std::vector<double> weights;
  int64_t first = 0;
  for (const Share &share : options.shares) {
    sources.push_back({first, share.samples, 0, {}});
    weights.push_back(share.weight);
    first += share.samples;
  }
  if (!weights.empty()) mixture.emplace(weights);
  begin(0);
}

void Sampler::begin(uint64_t epoch) {
  now.epoch = epoch, now.position = 0;
  if (options.shuffle && options.groupOf) group();
}

int64_t Sampler::sampleAt(Source &source, uint64_t epoch, int64_t place) const {
  if (!options.shuffle) return source.first + place;
  if (!source.order || source.epoch != epoch) {
    // Sources of equal size do not have the same order.
    const auto number = static_cast<uint64_t>(&source - sources.data());
    source.order.emplace(source.samples, options.seed + number * 0x9e3779b97f4a7c15U, epoch);
    source.epoch = epoch;
  }
  return source.first + (*source.order)(place);
}

// Whole batches of each group, in the order in which their first samples stand in the permutation; then the rest.
void Sampler::group() {
  struct Batch {
    int64_t place; // of its first sample
    std::vector<int64_t> samples;
  };
  std::vector<int64_t> order;
  for (int64_t place = 0; place < size; ++place) order.push_back(sampleAt(sources.front(), now.epoch, place));
  std::map<size_t, std::vector<int64_t>> places; // by group
  for (int64_t place = 0; place < size; ++place)
    places[options.groupOf(order[static_cast<size_t>(place)])].push_back(place);
  std::vector<Batch> batches;
  std::vector<int64_t> rest; // places
  for (auto &[number, own] : places) {
    own.insert(own.begin(), rest.begin(), rest.end());
    const size_t whole = own.size() - own.size() % static_cast<size_t>(batch);
    for (size_t first = 0; first < whole; first += static_cast<size_t>(batch)) {
      Batch &made = batches.emplace_back(Batch{own[first], {}});
      for (size_t i = first; i < first + static_cast<size_t>(batch); ++i)
        made.samples.push_back(order[static_cast<size_t>(own[i])]);
    }
    rest.assign(own.begin() + static_cast<int64_t>(whole), own.end());
  }
  std::ranges::sort(batches, {}, &Batch::place);
  grouped.clear();
  for (const Batch &batch : batches) grouped.insert(grouped.end(), batch.samples.begin(), batch.samples.end());
  for (int64_t place : rest) grouped.push_back(order[static_cast<size_t>(place)]);
}

int64_t Sampler::take() {
  const int64_t place = now.position++ % size;
  if (!grouped.empty()) return grouped[static_cast<size_t>(place)];
  if (!mixture) return sampleAt(sources.front(), now.epoch, place);
  const auto [number, drawn] = mixture->next();
  Source &source = sources[number];
  return sampleAt(source, static_cast<uint64_t>(drawn / source.samples), drawn % source.samples);
}

std::span<const int64_t> Sampler::next(int64_t count, int64_t wanted) {
  const bool isNew = open == 0 && wanted > 0;
  if (isNew) {
    if (isOver()) begin(now.epoch + 1);
    now.batch = open = batch;
  }
  counting = options.lastIsSmaller ? std::clamp<int64_t>(size - now.position, 0, wanted) : wanted;
  taken.clear();
  for (int64_t i = 0; i < counting; ++i) taken.push_back(take());
  if (isNew) filler = taken.front();
  taken.resize(static_cast<size_t>(count), filler);
  open -= wanted, now.taken += static_cast<uint64_t>(counting);
  return taken;
}

Status Sampler::restore(SamplerState state) {
  if (state.batch == 0) { // all steps had this batch
    state.batch = batch;
    state.taken = state.epoch * static_cast<uint64_t>(samplesPerEpoch()) + static_cast<uint64_t>(state.position);
  }
  if (state.position < 0 || state.batch < 1 || state.position >= size + state.batch ||
      std::max(state.epoch, state.taken / static_cast<uint64_t>(size)) >
          (uint64_t(1) << 62) / static_cast<uint64_t>(size))
    return inputError(
        fmt::format("the data position {} of epoch {} lies beyond the epoch's {} samples: the data is not the one of "
                    "the snapshot",
                    state.position, state.epoch, size));
  begin(state.epoch);
  now = state, open = 0;
  if (!grouped.empty() && now.position > 0 && !isOver() && state.batch != batch)
    return inputError(
        fmt::format("with data.lengths and shuffle the batch can change between epochs only: {} of the "
                    "{} samples of epoch {} are taken in batches of {}, and the order of its rest follows "
                    "from that; go on with dims.batch {} until the epoch's end",
                    now.position, size, now.epoch + 1, state.batch, state.batch));
  if (mixture) mixture->seek(static_cast<int64_t>(turn()));
  return Status::ok();
}

} // namespace cleave::runtime
