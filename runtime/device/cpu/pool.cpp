// Max and average pooling and their gradients over 1 to 3 spatial dimensions, NCHW; one plane (sample, channel) a
// share.
#include "runtime/device/cpu/commands.h"
#include "runtime/plan/dtype.h"
#include "runtime/threads/parallel.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <utility>
#include <vector>

namespace cleave::runtime {
namespace {

// Spatial sizes padded in front to three dimensions.
struct Window {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, low[3] = {0, 0, 0},
          high[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  int64_t inPlane = 1, outPlane = 1;

  explicit Window(const plan::Pool &pool) {
    int spatial = pool.kernel_size();
    for (int d = 0; d < spatial; ++d) {
      int to = 3 - spatial + d;
      in[to] = pool.input().shape(2 + d), out[to] = pool.output().shape(2 + d);
      kernel[to] = pool.kernel(d), stride[to] = pool.strides(d), low[to] = pool.pads_begin(d),
      high[to] = pool.pads_end(d);
      dilation[to] = pool.dilations_size() ? pool.dilations(d) : 1;
    }
    for (int d = 0; d < 3; ++d) inPlane *= in[d], outPlane *= out[d];
  }
  // Outputs along the last dimension whose window element `c` lies in the input: [first, last).
  std::pair<int64_t, int64_t> inside(int64_t c) const {
    const int64_t x = c * dilation[2] - low[2]; // of output 0
    const int64_t first = x < 0 ? (-x + stride[2] - 1) / stride[2] : 0;
    const int64_t last = in[2] > x ? (in[2] - 1 - x) / stride[2] + 1 : 0;
    return {std::min(first, out[2]), std::clamp<int64_t>(last, 0, out[2])};
  }
  // Calls elements(index of the input element of output 0, first, last) for every element of the windows of the row of
  // outputs at [z, y]: of outputs [first, last) the next one's element is `stride[2]` further on.
  template <typename Elements> void visit(int64_t z, int64_t y, Elements &&elements) const {
    for (int64_t a = 0; a < kernel[0]; ++a) {
      const int64_t inZ = z * stride[0] - low[0] + a * dilation[0];
      if (inZ < 0 || inZ >= in[0]) continue;
      for (int64_t b = 0; b < kernel[1]; ++b) {
        const int64_t inY = y * stride[1] - low[1] + b * dilation[1];
        if (inY < 0 || inY >= in[1]) continue;
        for (int64_t c = 0; c < kernel[2]; ++c) {
          const auto [first, last] = inside(c);
          if (first < last) elements((inZ * in[1] + inY) * in[2] + c * dilation[2] - low[2], first, last);
        }
      }
    }
  }
  // Window elements within the input extended by `withPads ? the pads : nothing`: an average's divisor.
  int64_t covered(const int64_t (&at)[3], bool withPads) const {
    int64_t count = 1;
    for (int d = 0; d < 3; ++d) {
      int64_t inside = 0;
      for (int64_t k = 0; k < kernel[d]; ++k) {
        int64_t position = at[d] * stride[d] - low[d] + k * dilation[d];
        inside += withPads ? position < in[d] + high[d] : position >= 0 && position < in[d];
      }
      count *= inside;
    }
    return std::max<int64_t>(count, 1);
  }
  // Calls row(z, y, index of the first of its outputs) for every row of outputs.
  template <typename Row> void forEachRow(Row &&row) const {
    for (int64_t z = 0; z < out[0]; ++z)
      for (int64_t y = 0; y < out[1]; ++y) row(z, y, (z * out[1] + y) * out[2]);
  }
};

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
  const Window &w;
  const Element *x = nullptr;
  Element *y = nullptr, *dx = nullptr;
  std::vector<Element> values;
  std::vector<int64_t> largestAt; // where it is; -1: none

  explicit PlanePool(const Window &w) : w(w), values(size_t(w.out[2])), largestAt(size_t(w.out[2])) {}

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
  void run(plan::Pool::Kind kind) {
    if (dx) std::memset(dx, 0, static_cast<size_t>(w.inPlane) * sizeof(Element));
    switch (kind) {
    case plan::Pool::MAX:
      return max();
    case plan::Pool::MAX_GRAD:
      return maxGrad();
    case plan::Pool::AVERAGE:
    case plan::Pool::AVERAGE_INCLUDE_PAD:
      return average(kind == plan::Pool::AVERAGE_INCLUDE_PAD);
    default:
      return averageGrad(kind == plan::Pool::AVERAGE_INCLUDE_PAD_GRAD);
    }
  }
};

template <typename Element> Prepared pool(const plan::Pool &command, const CpuContext &context) {
  Window window(command);
  auto kind = command.kind();
  auto *x = reinterpret_cast<const Element *>(context.at(command.input()));
  auto *y = reinterpret_cast<Element *>(context.at(command.output()));
  auto *dx = command.has_grad_input() ? reinterpret_cast<Element *>(context.at(command.grad_input())) : nullptr;
  int64_t planes = command.input().shape(0) * command.input().shape(1);
  return prepared([=] {
    parallelFor(planes, 1, [&](int64_t begin, int64_t end) {
      PlanePool<Element> plane(window);
      for (int64_t p = begin; p < end; ++p) {
        plane.x = x + p * window.inPlane, plane.y = y + p * window.outPlane;
        plane.dx = dx ? dx + p * window.inPlane : nullptr;
        plane.run(kind);
      }
    });
    return Status::ok();
  });
}

} // namespace

Result<Prepared> preparePool(const plan::Pool &command, const CpuContext &context) {
  if (command.input().dtype() == plan::F32) return pool<float>(command, context);
  if (command.input().dtype() == plan::F64) return pool<double>(command, context);
  return inputError(fmt::format("no pooling of {}", name(command.input().dtype())));
}

} // namespace cleave::runtime
