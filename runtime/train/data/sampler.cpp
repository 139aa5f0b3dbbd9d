#include "runtime/train/data/sampler.h"
#include "runtime/base/philox.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>

namespace cleave::runtime {
namespace {

constexpr uint64_t permutationStream = 0x73616d70; // apart from the streams of dropout and initial weights

// A whole number in [0, bound) from 64 random bits; the bias is below bound / 2^64.
int64_t below(uint64_t random, int64_t bound) {
  return static_cast<int64_t>(static_cast<unsigned __int128>(random) * static_cast<uint64_t>(bound) >> 64);
}

} // namespace

Sampler::Sampler(int64_t size, SamplerOptions given) : size(size), options(std::move(given)) {
  int64_t whole = size / options.batch * options.batch;
  perEpoch = whole == size || (options.dropLast && whole > 0) ? whole : whole + options.batch;
  begin(0);
}

void Sampler::begin(uint64_t epoch) {
  now = {epoch, 0};
  order.resize(static_cast<size_t>(std::max(size, perEpoch)));
  std::iota(order.begin(), order.begin() + size, 0);
  if (options.shuffle)
    for (int64_t i = size - 1; i > 0; --i) { // Fisher and Yates
      auto words = philoxWords(options.seed, epoch, permutationStream, static_cast<uint64_t>(i));
      std::swap(order[static_cast<size_t>(i)],
                order[static_cast<size_t>(below(uint64_t(words[0]) << 32 | words[1], i + 1))]);
    }
  if (options.shuffle && options.groupOf) group();
  for (int64_t i = size; i < perEpoch; ++i) order[static_cast<size_t>(i)] = order[static_cast<size_t>(i - size)];
}

// Whole batches of each group, in the order in which their first samples stand in the permutation; then the rest.
void Sampler::group() {
  struct Batch {
    int64_t place; // of its first sample
    std::vector<int64_t> samples;
  };
  std::map<size_t, std::vector<int64_t>> places; // by group
  for (int64_t place = 0; place < size; ++place)
    places[options.groupOf(order[static_cast<size_t>(place)])].push_back(place);
  std::vector<Batch> batches;
  std::vector<int64_t> rest; // places
  for (auto &[number, own] : places) {
    own.insert(own.begin(), rest.begin(), rest.end());
    const size_t whole = own.size() - own.size() % static_cast<size_t>(options.batch);
    for (size_t first = 0; first < whole; first += static_cast<size_t>(options.batch)) {
      Batch &batch = batches.emplace_back(Batch{own[first], {}});
      for (size_t i = first; i < first + static_cast<size_t>(options.batch); ++i)
        batch.samples.push_back(order[static_cast<size_t>(own[i])]);
    }
    rest.assign(own.begin() + static_cast<int64_t>(whole), own.end());
  }
  std::ranges::sort(batches, {}, &Batch::place);
  std::vector<int64_t> grouped;
  for (const Batch &batch : batches) grouped.insert(grouped.end(), batch.samples.begin(), batch.samples.end());
  for (int64_t place : rest) grouped.push_back(order[static_cast<size_t>(place)]);
  std::ranges::copy(grouped, order.begin());
}

std::span<const int64_t> Sampler::next(int64_t count) {
  if (now.position + count > perEpoch) begin(now.epoch + 1);
  std::span<const int64_t> taken(order.data() + now.position, static_cast<size_t>(count));
  now.position += count;
  return taken;
}

Status Sampler::restore(SamplerState state) {
  if (state.position < 0 || state.position > perEpoch)
    return inputError(
        fmt::format("the data position {} lies beyond the epoch's {} samples: the data is not the one of the "
                    "snapshot",
                    state.position, perEpoch));
  begin(state.epoch);
  now.position = state.position;
  return Status::ok();
}

} // namespace cleave::runtime
