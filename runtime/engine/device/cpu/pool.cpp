// Max and average pooling and their gradients over 1 to 3 spatial dimensions, NCHW; one plane (sample, channel) a
// share. Channels that lie last: pool_channels_last.cpp.
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/device/cpu/pool_window.h"
#include "runtime/engine/device/cpu/widened_command.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <utility>
#include <vector>

namespace cleave::runtime {
namespace {

// Calls body(output, input) for outputs [first, last) along a row; a stride that the compiler knows is faster.
template <typename Body> void along(int64_t first, int64_t last, int64_t base, int64_t stride, Body &&body) {
  if (stride == 1)
    for (int64_t o = first; o < last; ++o) body(o, base + o);
  else if (stride == 2)
    for (int64_t o = first; o < last; ++o) body(o, base + 2 * o);
  else
    for (int64_t o = first; o < last; ++o) body(o, base + o * stride);
}

// Rows of outputs at a time; an output meets the elements of its window in their order.
template <typename Element> struct PlanePool {
  const PoolWindow &w;
  const Element *x = nullptr;
  Element *y = nullptr, *dx = nullptr;
  std::vector<Element> values;
  std::vector<int64_t> largestAt; // where it is; -1: none

  explicit PlanePool(const PoolWindow &w) : w(w), values(size_t(w.out[2])), largestAt(size_t(w.out[2])) {}

  void max() {
    w.forEachRow([&](int64_t z, int64_t row, int64_t at) {
      Element *__restrict best = y + at;
      const Element *__restrict from = x;
      std::fill(best, best + w.out[2], -std::numeric_limits<Element>::infinity());
      w.visit(z, row, [&](int64_t base, int64_t first, int64_t last) {
        along(first, last, base, w.stride[2], [=](int64_t o, int64_t i) {
          best[o] = ((from[i] > best[o]) | (from[i] != from[i])) ? from[i] : best[o];
        });
      });
    });
  }
  // The first largest element of a window gets its gradient, as in PyTorch.
  void maxGrad() {
    Element *__restrict best = values.data();
    int64_t *__restrict bestAt = largestAt.data();
    const Element *__restrict from = x;
    w.forEachRow([&](int64_t z, int64_t row, int64_t at) {
      std::fill(bestAt, bestAt + w.out[2], -1);
      w.visit(z, row, [&](int64_t base, int64_t first, int64_t last) {
        along(first, last, base, w.stride[2], [=](int64_t o, int64_t i) {
          const bool isLarger = (bestAt[o] < 0) | (from[i] > best[o]) | (from[i] != from[i]);
          best[o] = isLarger ? from[i] : best[o];
          bestAt[o] = isLarger ? i : bestAt[o];
        });
      });
      for (int64_t o = 0; o < w.out[2]; ++o)
        if (bestAt[o] >= 0) dx[bestAt[o]] += y[at + o];
    });
  }
  void average(bool withPads) {
    w.forEachRow([&](int64_t z, int64_t row, int64_t at) {
      Element *sum = y + at;
      std::fill(sum, sum + w.out[2], Element(0));
      w.visit(z, row, [&](int64_t base, int64_t first, int64_t last) {
        along(first, last, base, w.stride[2], [&](int64_t o, int64_t i) { sum[o] += x[i]; });
      });
      for (int64_t o = 0; o < w.out[2]; ++o) sum[o] /= static_cast<Element>(w.covered({z, row, o}, withPads));
    });
  }
  void averageGrad(bool withPads) {
    w.forEachRow([&](int64_t z, int64_t row, int64_t at) {
      for (int64_t o = 0; o < w.out[2]; ++o)
        values[size_t(o)] = y[at + o] / static_cast<Element>(w.covered({z, row, o}, withPads));
      w.visit(z, row, [&](int64_t base, int64_t first, int64_t last) {
        along(first, last, base, w.stride[2], [&](int64_t o, int64_t i) { dx[i] += values[size_t(o)]; });
      });
    });
  }
  void clearGradient() { std::memset(dx, 0, static_cast<size_t>(w.inPlane) * sizeof(Element)); }
};

template <typename Element> Prepared pool(const plan::Pool &command, const CpuContext &context) {
  if (command.channels_last()) return poolChannelsLast<Element>(command, context);
  PoolWindow window(command);
  auto kind = command.kind();
  const PoolBuffers<Element> of(command, context);
  int64_t planes = command.input().shape(0) * command.input().shape(1);
  return prepared([=] {
    parallelFor(planes, 1, [&](int64_t begin, int64_t end) {
      PlanePool<Element> plane(window);
      for (int64_t p = begin; p < end; ++p) {
        plane.x = of.x + p * window.inPlane, plane.y = of.y + p * window.outPlane;
        plane.dx = of.dx ? of.dx + p * window.inPlane : nullptr;
        runPool(plane, kind);
      }
    });
    return Status::ok();
  });
}

} // namespace

Result<Prepared> preparePool(const plan::Pool &command, const CpuContext &context) {
  if (hasSixteenBits(command.input())) {
    const auto input = &plan::Pool::mutable_input, output = &plan::Pool::mutable_output,
               gradient = &plan::Pool::mutable_grad_input;
    if (command.kind() < plan::Pool::MAX_GRAD) return widened(command, context, {input}, {output}, preparePool);
    if (command.kind() == plan::Pool::MAX_GRAD)
      return widened(command, context, {input, output}, {gradient}, preparePool);
    plan::Pool average = command; // reads the shape of its input only
    average.mutable_input()->set_dtype(plan::F32);
    return widened(average, context, {output}, {gradient}, preparePool);
  }
  if (command.input().dtype() == plan::F32) return pool<float>(command, context);
  if (command.input().dtype() == plan::F64) return pool<double>(command, context);
  return inputError(fmt::format("no pooling of {}", name(command.input().dtype())));
}

} // namespace cleave::runtime
