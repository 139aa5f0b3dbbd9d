// Pooling where the channels lie last: the window's elements one after the other, each for all channels of a block side
// by side. A block of one sample's channels is a share.
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/device/cpu/pool_window.h"
#include <array>
#include <cmath>
#include <limits>

namespace cleave::runtime {
namespace {

constexpr int64_t mostChannels = 64; // of a block: four cache lines of f32

template <typename Element> struct ChannelPool {
  const PoolWindow &w;
  int64_t channels; // of a sample: elements between neighbours
  int64_t count;    // of the block
  const Element *x; // of the block's first channel, as y and dx
  Element *y, *dx;
  std::array<Element, mostChannels> values{};
  std::array<int64_t, mostChannels> largestAt{}; // where it is; -1: none

  // Calls output(z, y, x, the output's first element).
  template <typename Output> void forEachOutput(Output &&output) const {
    w.forEachRow([&](int64_t z, int64_t row, int64_t at) {
      for (int64_t o = 0; o < w.out[2]; ++o) output(z, row, o, (at + o) * channels);
    });
  }
  void max() {
    forEachOutput([&](int64_t z, int64_t row, int64_t o, int64_t at) {
      Element *__restrict best = y + at;
      std::fill(best, best + count, -std::numeric_limits<Element>::infinity());
      w.visitOne(z, row, o, [&](int64_t i) {
        const Element *__restrict from = x + i * channels;
        for (int64_t c = 0; c < count; ++c) best[c] = ((from[c] > best[c]) | (from[c] != from[c])) ? from[c] : best[c];
      });
    });
  }
  // The first largest element of a window gets its gradient, as in PyTorch.
  void maxGrad() {
    forEachOutput([&](int64_t z, int64_t row, int64_t o, int64_t at) {
      Element *__restrict best = values.data();
      int64_t *__restrict bestAt = largestAt.data();
      std::fill(bestAt, bestAt + count, -1);
      w.visitOne(z, row, o, [&](int64_t i) {
        const Element *__restrict from = x + i * channels;
        for (int64_t c = 0; c < count; ++c) {
          const bool isLarger = (bestAt[c] < 0) | (from[c] > best[c]) | (from[c] != from[c]);
          best[c] = isLarger ? from[c] : best[c];
          bestAt[c] = isLarger ? i : bestAt[c];
        }
      });
      for (int64_t c = 0; c < count; ++c)
        if (bestAt[c] >= 0) dx[bestAt[c] * channels + c] += y[at + c];
    });
  }
  void average(bool withPads) {
    forEachOutput([&](int64_t z, int64_t row, int64_t o, int64_t at) {
      Element *__restrict sum = y + at;
      std::fill(sum, sum + count, Element(0));
      w.visitOne(z, row, o, [&](int64_t i) {
        const Element *__restrict from = x + i * channels;
        for (int64_t c = 0; c < count; ++c) sum[c] += from[c];
      });
      const auto divisor = static_cast<Element>(w.covered({z, row, o}, withPads));
      for (int64_t c = 0; c < count; ++c) sum[c] /= divisor;
    });
  }
  void averageGrad(bool withPads) {
    forEachOutput([&](int64_t z, int64_t row, int64_t o, int64_t at) {
      const auto divisor = static_cast<Element>(w.covered({z, row, o}, withPads));
      for (int64_t c = 0; c < count; ++c) values[size_t(c)] = y[at + c] / divisor;
      w.visitOne(z, row, o, [&](int64_t i) {
        Element *__restrict to = dx + i * channels;
        for (int64_t c = 0; c < count; ++c) to[c] += values[size_t(c)];
      });
    });
  }
  void clearGradient() {
    for (int64_t i = 0; i < w.inPlane; ++i) std::fill(dx + i * channels, dx + i * channels + count, Element(0));
  }
};

} // namespace

template <typename Element> Prepared poolChannelsLast(const plan::Pool &command, const CpuContext &context) {
  PoolWindow window(command);
  auto kind = command.kind();
  const PoolBuffers<Element> of(command, context);
  const int64_t samples = command.input().shape(0), channels = command.input().shape(command.input().shape_size() - 1),
                blocks = (channels + mostChannels - 1) / mostChannels;
  return prepared([=] {
    parallelFor(samples * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t share = begin; share < end; ++share) {
        const int64_t sample = share / blocks, first = share % blocks * mostChannels;
        const int64_t in = sample * window.inPlane * channels + first,
                      out = sample * window.outPlane * channels + first;
        runPool(ChannelPool<Element>{.w = window,
                                     .channels = channels,
                                     .count = std::min(mostChannels, channels - first),
                                     .x = of.x + in,
                                     .y = of.y + out,
                                     .dx = of.dx ? of.dx + in : nullptr},
                kind);
      }
    });
    return Status::ok();
  });
}

template Prepared poolChannelsLast<float>(const plan::Pool &, const CpuContext &);
template Prepared poolChannelsLast<double>(const plan::Pool &, const CpuContext &);

} // namespace cleave::runtime
