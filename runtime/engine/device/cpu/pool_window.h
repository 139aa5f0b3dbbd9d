// The windows of a pooling: spatial sizes padded in front to three dimensions, and which elements meet.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/engine/device/cpu/commands.h"
#include <algorithm>
#include <utility>

namespace cleave::runtime {

struct PoolWindow {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, low[3] = {0, 0, 0},
          high[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  int64_t inPlane = 1, outPlane = 1;

  explicit PoolWindow(const plan::Pool &pool) {
    const int spatial = pool.kernel_size(), first = pool.channels_last() ? 1 : 2;
    for (int d = 0; d < spatial; ++d) {
      int to = 3 - spatial + d;
      in[to] = pool.input().shape(first + d), out[to] = pool.output().shape(first + d);
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
  // Calls element(index of the input element) for every element of the window of one output.
  template <typename Element> void visitOne(int64_t z, int64_t y, int64_t x, Element &&element) const {
    visit(z, y, [&](int64_t base, int64_t first, int64_t last) {
      if (x >= first && x < last) element(base + x * stride[2]);
    });
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

// Pooling where the channels lie last; float or double.
template <typename Element> Prepared poolChannelsLast(const plan::Pool &command, const CpuContext &context);

// Calls the pool's own way of that kind; gradients begin with zeros.
template <typename Pool> void runPool(Pool &&pool, plan::Pool::Kind kind) {
  if (pool.dx) pool.clearGradient();
  switch (kind) {
  case plan::Pool::MAX:
    return pool.max();
  case plan::Pool::MAX_GRAD:
    return pool.maxGrad();
  case plan::Pool::AVERAGE:
  case plan::Pool::AVERAGE_INCLUDE_PAD:
    return pool.average(kind == plan::Pool::AVERAGE_INCLUDE_PAD);
  default:
    return pool.averageGrad(kind == plan::Pool::AVERAGE_INCLUDE_PAD_GRAD);
  }
}

// Where a pool's tensors lie; `dx` is null of a forward pass.
template <typename Element> struct PoolBuffers {
  const Element *x;
  Element *y, *dx;

  PoolBuffers(const plan::Pool &command, const CpuContext &context)
      : x(reinterpret_cast<const Element *>(context.at(command.input()))),
        y(reinterpret_cast<Element *>(context.at(command.output()))),
        dx(command.has_grad_input() ? reinterpret_cast<Element *>(context.at(command.grad_input())) : nullptr) {}
};

} // namespace cleave::runtime
