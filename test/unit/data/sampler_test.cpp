#include "runtime/train/data/sampler.h"
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <set>

namespace cleave::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> drawn(Sampler &sampler, int64_t batches, int64_t batch) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < batches; ++i)
    for (int64_t index : sampler.next(batch)) all.push_back(index);
  return all;
}

TEST(Permutation, HasEachNumberOnce) {
  for (int64_t size = 1; size <= 1000; ++size) {
    const Permutation order(size, 7, static_cast<uint64_t>(size % 3));
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t value = order(i);
      ASSERT_TRUE(value >= 0 && value < size && !seen[static_cast<size_t>(value)]) << size << " " << i;
      seen[static_cast<size_t>(value)] = true;
    }
  }
  for (int64_t size : {int64_t(1 << 17), int64_t(1 << 17) + 1, int64_t(300007)}) {
    const Permutation order(size, 1, 2);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) seen[static_cast<size_t>(order(i))] = true;
    EXPECT_TRUE(std::ranges::all_of(seen, [](bool is) { return is; })) << size;
  }
  const int64_t huge = (int64_t(1) << 62) - 57; // neighbours stay apart, and in range
  const Permutation order(huge, 3, 4);
  std::set<int64_t> values;
  for (int64_t i = huge - 1000; i < huge; ++i) values.insert(order(i));
  EXPECT_EQ(values.size(), 1000u);
  EXPECT_TRUE(*values.begin() >= 0 && *values.rbegin() < huge);
}

// The sum of (count - mean)^2 / mean over `counts`, in standard deviations from what chance gives (n - 1).
double chiSquare(const std::vector<int64_t> &counts) {
  const double cells = static_cast<double>(counts.size()),
               mean = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t(0))) / cells;
  double sum = 0;
  for (int64_t count : counts) sum += (static_cast<double>(count) - mean) * (static_cast<double>(count) - mean) / mean;
  return (sum - (cells - 1)) / std::sqrt(2 * (cells - 1));
}

// Over epochs and over seeds: where each place's sample lies, all orders of few samples, and pairs of neighbours.
TEST(Permutation, IsLikeAShuffle) {
  for (int64_t size : {3, 4, 5, 7, 10, 16, 100}) {
    std::vector<std::vector<int64_t>> at(3, std::vector<int64_t>(static_cast<size_t>(size)));
    std::vector<int64_t> apart(static_cast<size_t>(size)); // of the second sample from the first, in a ring
    for (uint64_t i = 0; i < 20000; ++i) {
      const Permutation order(size, i % 2 ? i : 7, i % 2 ? 0 : i);
      const std::array<int64_t, 3> places = {0, size / 2, size - 1};
      for (size_t k = 0; k < 3; ++k) ++at[k][static_cast<size_t>(order(places[k]))];
      ++apart[static_cast<size_t>((order(1) - order(0) + size) % size)];
    }
    for (const std::vector<int64_t> &counts : at) EXPECT_LT(std::abs(chiSquare(counts)), 5) << size;
    EXPECT_EQ(apart[0], 0);
    apart.erase(apart.begin());
    EXPECT_LT(std::abs(chiSquare(apart)), 5) << size;
  }
  std::map<std::vector<int64_t>, int64_t> orders;
  for (uint64_t epoch = 0; epoch < 24000; ++epoch) {
    const Permutation order(4, 5, epoch);
    ++orders[{order(0), order(1), order(2), order(3)}];
  }
  std::vector<int64_t> counts;
  for (const auto &[order, count] : orders) counts.push_back(count);
  EXPECT_EQ(counts.size(), 24u);
  EXPECT_LT(std::abs(chiSquare(counts)), 5);
  // Within one long epoch: distances of neighbours have the mean n/3 and the deviation n/sqrt(18) of two random places,
  // and as many samples stay where they are as in a shuffle, one.
  const int64_t size = 100003;
  const Permutation order(size, 9, 1);
  double sum = 0;
  int64_t fixed = 0, rising = 0;
  for (int64_t i = 0; i + 1 < size; ++i) {
    sum += std::abs(static_cast<double>(order(i + 1) - order(i)));
    rising += order(i + 1) > order(i);
    fixed += order(i) == i;
  }
  const double n = static_cast<double>(size);
  EXPECT_NEAR(sum / n, n / 3, 5 * n / std::sqrt(18 * n) * 1.2);
  EXPECT_NEAR(static_cast<double>(rising), n / 2, 5 * std::sqrt(n / 12)); // Eulerian numbers
  EXPECT_LE(fixed, 8);
}

TEST(Sampler, EveryEpochIsAPermutationPadded) {
  Sampler sampler(10, {.batch = 4, .seed = 7});
  EXPECT_EQ(sampler.samplesPerEpoch(), 12);
  EXPECT_EQ(sampler.repeatedSamples(), 2);
  const std::vector<int64_t> first = drawn(sampler, 3, 4);
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.begin() + 10).size(), 10u);
  EXPECT_EQ(first[10], first[0]); // DistributedSampler pads from the beginning
  EXPECT_EQ(first[11], first[1]);
  EXPECT_NE(first, drawn(sampler, 3, 4));
  Sampler same(10, {.batch = 4, .seed = 7}), other(10, {.batch = 4, .seed = 8});
  EXPECT_EQ(drawn(same, 3, 4), first);
  EXPECT_NE(drawn(other, 3, 4), first);
}

TEST(Sampler, InOrderAndDropLast) {
  Sampler ordered(5, {.batch = 2, .shuffle = false});
  EXPECT_THAT(drawn(ordered, 3, 2), ElementsAre(0, 1, 2, 3, 4, 0));
  Sampler dropping(5, {.batch = 2, .shuffle = false, .dropLast = true});
  EXPECT_EQ(dropping.samplesPerEpoch(), 4);
  EXPECT_EQ(dropping.repeatedSamples(), 0);
  EXPECT_THAT(drawn(dropping, 3, 2), ElementsAre(0, 1, 2, 3, 0, 1));
  Sampler small(3, {.batch = 8, .shuffle = false});
  EXPECT_THAT(small.next(8), ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
}

// Wherever it stops, and in whatever pieces a batch is taken.
TEST(Sampler, GoesOnFromItsState) {
  const std::vector<Share> shares = {{50, 0.6}, {31, 0.3}, {22, 0.1}};
  for (const SamplerOptions &options :
       {SamplerOptions{.batch = 8, .seed = 3}, SamplerOptions{.batch = 8, .seed = 3, .dropLast = true},
        SamplerOptions{.batch = 8, .seed = 3, .shares = shares}}) {
    Sampler reference(103, options);
    const std::vector<int64_t> all = drawn(reference, 60, 8);
    for (int64_t stop : {1, 12, 13, 14, 20, 40}) {
      Sampler sampler(103, options);
      drawn(sampler, stop, 8);
      EXPECT_EQ(sampler.turn(), static_cast<uint64_t>(8 * stop));
      Sampler resumed(103, options);
      ASSERT_TRUE(resumed.restore(sampler.state()).isOk());
      EXPECT_EQ(drawn(resumed, (60 - stop) * 4, 2), std::vector<int64_t>(all.begin() + 8 * stop, all.end()));
    }
    EXPECT_FALSE(reference.restore({0, 1000}).isOk());
    EXPECT_FALSE(reference.restore({uint64_t(1) << 63, 0}).isOk());
  }
}

// Of another batch from some step on, with a resume there or without: no sample is lost, and none comes twice but at an
// epoch's end.
TEST(Sampler, GoesOnWithAnotherBatch) {
  constexpr int64_t size = 101;
  const std::vector<int64_t> batches = {4, 4, 16, 16, 16, 64, 8, 8, 32, 4, 64, 16, 64, 8};
  auto options = [](int64_t batch, bool shuffle, bool dropLast) {
    return SamplerOptions{.batch = batch, .seed = 3, .shuffle = shuffle, .dropLast = dropLast};
  };
  for (const bool dropLast : {false, true}) {
    Sampler ramped(size, options(batches[0], true, dropLast)), alone(size, options(1, true, true));
    SamplerState state;
    std::vector<int64_t> epoch; // the one under way
    int64_t taken = 0;
    for (int64_t batch : batches) {
      ramped.setBatch(batch);
      const std::span<const int64_t> one = ramped.next(batch);
      Sampler resumed(size, options(batch, true, dropLast));
      ASSERT_TRUE(resumed.restore(state).isOk());
      const std::span<const int64_t> other = resumed.next(batch);
      ASSERT_TRUE(std::ranges::equal(one, other));
      if (ramped.state().position == batch) { // a new epoch, where the one before is at its end
        if (dropLast)
          EXPECT_TRUE(epoch.empty() || std::ssize(epoch) + batch > size);
        else
          EXPECT_TRUE(epoch.empty() || std::ssize(epoch) >= size);
        epoch.clear();
        ASSERT_TRUE(alone.restore({ramped.state().epoch, 0}).isOk());
      }
      for (int64_t sample : one) {
        if (std::ssize(epoch) < size) EXPECT_EQ(sample, alone.next(1)[0]); // that of batches of 1, in their order
        epoch.push_back(sample);
      }
      taken += batch, state = ramped.state();
      EXPECT_EQ(ramped.turn(), static_cast<uint64_t>(taken));
    }
    EXPECT_GE(state.epoch, 2u);
  }
  // A mixture goes on with its sources.
  const std::vector<Share> shares = {{50, 0.6}, {31, 0.4}};
  Sampler mixed(81, {.batch = 4, .seed = 3, .shares = shares}), small(81, {.batch = 1, .seed = 3, .shares = shares});
  SamplerState state;
  for (int64_t batch : batches) {
    Sampler resumed(81, {.batch = batch, .seed = 3, .shares = shares});
    ASSERT_TRUE(resumed.restore(state).isOk());
    mixed.setBatch(batch);
    const std::span<const int64_t> one = mixed.next(batch);
    EXPECT_TRUE(std::ranges::equal(one, resumed.next(batch)));
    for (int64_t sample : one) EXPECT_EQ(sample, small.next(1)[0]);
    state = mixed.state();
  }
  // How samples of several lengths are grouped follows from the batch.
  auto groupOf = [](int64_t sample) { return static_cast<size_t>(sample % 2); };
  Sampler grouped(20, {.batch = 4, .seed = 3, .groupOf = groupOf}),
      other(20, {.batch = 2, .seed = 3, .groupOf = groupOf});
  drawn(grouped, 2, 4);
  EXPECT_THAT(other.restore(grouped.state()).message(), HasSubstr("are taken in batches of 4"));
  drawn(grouped, 3, 4);
  EXPECT_TRUE(other.restore(grouped.state()).isOk());
}

// After any number of turns every source is within one of its share, and the turns are those of a counter.
TEST(Blend, EverySourceIsWithinOneOfItsShare) {
  const std::vector<std::vector<double>> all = {{1},
                                                {0.7, 0.3},
                                                {1.0 / 3, 2.0 / 3},
                                                {5, 1, 1, 1},
                                                {0.05, 0.5, 0.05, 0.1, 0.1, 0.1, 0.1},
                                                {1e6, 1e-6, 1},
                                                {0.31, 0.3, 0.11, 0.09, 0.08, 0.06, 0.03, 0.02},
                                                std::vector<double>(37, 1.0)};
  for (const std::vector<double> &weights : all) {
    double total = 0;
    for (double weight : weights) total += weight;
    Blend blend(weights);
    std::vector<int64_t> given(weights.size());
    std::vector<size_t> turns;
    for (int64_t turn = 1; turn <= 5000; ++turn) {
      const auto [source, number] = blend.next();
      ASSERT_LT(source, weights.size());
      ASSERT_EQ(number, given[source]++);
      turns.push_back(source);
      for (size_t i = 0; i < weights.size(); ++i)
        ASSERT_LT(std::abs(static_cast<double>(given[i]) - weights[i] / total * static_cast<double>(turn)), 1 + 1e-5)
            << i << " of " << weights.size() << " after " << turn;
    }
    for (int64_t from : {0, 1, 17, 2048, 4999}) {
      Blend other(weights);
      other.seek(from);
      const auto [source, number] = other.next();
      EXPECT_EQ(source, turns[static_cast<size_t>(from)]);
      EXPECT_EQ(number, std::ranges::count(turns.begin(), turns.begin() + from, source));
    }
  }
  Blend far({0.7, 0.3}), near({0.7, 0.3}); // ten turns repeat
  far.seek(10'000'000'000'000'006), near.seek(6);
  for (int i = 0; i < 20; ++i) {
    const auto [source, number] = far.next();
    const auto [same, small] = near.next();
    EXPECT_EQ(source, same);
    EXPECT_EQ(number, small + (source == 0 ? 7'000'000'000'000'000 : 3'000'000'000'000'000));
  }
}

// Each source has epochs of its own: whole permutations, one behind the other.
TEST(Sampler, SourcesOfAMixtureHaveEpochsOfTheirOwn) {
  Sampler sampler(15, {.batch = 6, .seed = 7, .shares = {{10, 1}, {5, 2}}});
  EXPECT_EQ(sampler.samplesPerEpoch(), 18);
  EXPECT_EQ(sampler.repeatedSamples(), 0);
  std::vector<int64_t> first, second;
  for (int64_t index : drawn(sampler, 10, 6)) (index < 10 ? first : second).push_back(index);
  ASSERT_EQ(first.size(), 20u);
  ASSERT_EQ(second.size(), 40u);
  for (size_t begin = 0; begin < 20; begin += 10)
    EXPECT_EQ(
        std::set<int64_t>(first.begin() + static_cast<int64_t>(begin), first.begin() + static_cast<int64_t>(begin) + 10)
            .size(),
        10u);
  std::set<std::vector<int64_t>> orders;
  for (int64_t begin = 0; begin < 40; begin += 5) {
    const std::vector<int64_t> epoch(second.begin() + begin, second.begin() + begin + 5);
    EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()), (std::set<int64_t>{10, 11, 12, 13, 14}));
    orders.insert(epoch);
  }
  EXPECT_GT(orders.size(), 5u);
  Sampler ordered(15, {.batch = 6, .shuffle = false, .shares = {{10, 1}, {5, 2}}});
  EXPECT_THAT(drawn(ordered, 2, 6), ElementsAre(10, 0, 11, 12, 1, 13, 14, 2, 10, 11, 3, 12));
}

TEST(Sampler, GroupsSamplesThatNeedTheSameLength) {
  constexpr int64_t size = 103, batch = 4;
  auto groupOf = [](int64_t sample) { return static_cast<size_t>(sample % 7 == 0 ? 2 : sample % 3 == 0); };
  Sampler sampler(size, {.batch = batch, .seed = 7, .groupOf = groupOf});
  Sampler plain(size, {.batch = batch, .seed = 7});
  std::vector<int64_t> first;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> samples, alone;
    int64_t mixed = 0;
    for (int64_t step = 0; step < sampler.samplesPerEpoch() / batch; ++step) {
      std::span<const int64_t> taken = sampler.next(batch);
      samples.insert(samples.end(), taken.begin(), taken.end());
      mixed += std::ranges::any_of(taken, [&](int64_t one) { return groupOf(one) != groupOf(taken[0]); });
      std::span<const int64_t> other = plain.next(batch);
      alone.insert(alone.end(), other.begin(), other.end());
    }
    EXPECT_LE(mixed, 3); // one a border, and the last
    EXPECT_NE(samples, alone);
    samples.resize(size);
    if (epoch == 0) first = samples;
    EXPECT_EQ(epoch == 0, samples == first); // another order in every epoch
    std::ranges::sort(samples);
    for (int64_t i = 0; i < size; ++i) EXPECT_EQ(samples[static_cast<size_t>(i)], i);
  }
}

} // namespace
} // namespace cleave::runtime
