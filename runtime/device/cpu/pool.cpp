// Max and average pooling and their gradients over 1 to 3 spatial dimensions, NCHW; one plane (sample, channel) a
// share.
#include "runtime/device/cpu/commands.h"
#include "runtime/device/parallel.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

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
  // Calls element(input index) for every input element in the window of output `at`.
  template <typename Element> void visit(const int64_t (&at)[3], Element &&element) const {
    int64_t begin[3];
    for (int d = 0; d < 3; ++d) begin[d] = at[d] * stride[d] - low[d];
    for (int64_t a = 0; a < kernel[0]; ++a) {
      int64_t z = begin[0] + a * dilation[0];
      if (z < 0 || z >= in[0]) continue;
      for (int64_t b = 0; b < kernel[1]; ++b) {
        int64_t y = begin[1] + b * dilation[1];
        if (y < 0 || y >= in[1]) continue;
        for (int64_t c = 0; c < kernel[2]; ++c) {
          int64_t x = begin[2] + c * dilation[2];
          if (x >= 0 && x < in[2]) element((z * in[1] + y) * in[2] + x);
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
  template <typename Body> void forEachOutput(Body &&body) const {
    int64_t at[3], index = 0;
    for (at[0] = 0; at[0] < out[0]; ++at[0])
      for (at[1] = 0; at[1] < out[1]; ++at[1])
        for (at[2] = 0; at[2] < out[2]; ++at[2]) body(at, index++);
  }
};

template <typename Element>
void poolPlane(const Window &w, plan::Pool::Kind kind, const Element *x, Element *y, Element *dx) {
  const bool withPads = kind == plan::Pool::AVERAGE_INCLUDE_PAD || kind == plan::Pool::AVERAGE_INCLUDE_PAD_GRAD;
  switch (kind) {
  case plan::Pool::MAX:
    return w.forEachOutput([&](const int64_t (&at)[3], int64_t o) {
      Element best = -std::numeric_limits<Element>::infinity();
      w.visit(at, [&](int64_t i) { best = x[i] > best || std::isnan(x[i]) ? x[i] : best; });
      y[o] = best;
    });
  case plan::Pool::MAX_GRAD: // the first largest element of a window gets its gradient, as in PyTorch
    std::memset(dx, 0, static_cast<size_t>(w.inPlane) * sizeof(Element));
    return w.forEachOutput([&](const int64_t (&at)[3], int64_t o) {
      int64_t best = -1;
      w.visit(at, [&](int64_t i) { best = best < 0 || x[i] > x[best] || std::isnan(x[i]) ? i : best; });
      if (best >= 0) dx[best] += y[o];
    });
  case plan::Pool::AVERAGE:
  case plan::Pool::AVERAGE_INCLUDE_PAD:
    return w.forEachOutput([&](const int64_t (&at)[3], int64_t o) {
      Element sum = 0;
      w.visit(at, [&](int64_t i) { sum += x[i]; });
      y[o] = sum / static_cast<Element>(w.covered(at, withPads));
    });
  default:
    std::memset(dx, 0, static_cast<size_t>(w.inPlane) * sizeof(Element));
    return w.forEachOutput([&](const int64_t (&at)[3], int64_t o) {
      Element share = y[o] / static_cast<Element>(w.covered(at, withPads));
      w.visit(at, [&](int64_t i) { dx[i] += share; });
    });
  }
}

template <typename Element> Prepared pool(const plan::Pool &command, const CpuContext &context) {
  Window window(command);
  auto kind = command.kind();
  auto *x = reinterpret_cast<const Element *>(context.at(command.input()));
  auto *y = reinterpret_cast<Element *>(context.at(command.output()));
  auto *dx = command.has_grad_input() ? reinterpret_cast<Element *>(context.at(command.grad_input())) : nullptr;
  int64_t planes = command.input().shape(0) * command.input().shape(1);
  return prepared([=] {
    parallelFor(planes, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        poolPlane(window, kind, x + p * window.inPlane, y + p * window.outPlane,
                  dx ? dx + p * window.inPlane : nullptr);
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
