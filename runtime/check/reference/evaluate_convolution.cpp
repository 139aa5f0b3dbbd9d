// Convolutions and pools over any number of spatial dimensions.
#include "runtime/check/reference/evaluation.h"
#include "runtime/check/reference/matrix_product.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace cleave::runtime {
namespace {

struct Window {
  Ints input, output, kernel; // spatial sizes
  Ints strides, padsBegin, padsEnd, dilations;
};

Window window(const Evaluation &e, const Ints &input, const Ints &kernel) {
  Window w{{input.begin() + 2, input.end()},
           {},
           kernel,
           e.ints("strides"),
           e.ints("pads_begin"),
           e.ints("pads_end"),
           e.ints("dilations")};
  size_t rank = w.input.size();
  e.check(kernel.size() == rank && w.strides.size() == rank && w.padsBegin.size() == rank && w.padsEnd.size() == rank &&
              w.dilations.size() == rank,
          "needs an entry for each spatial dimension");
  for (size_t d = 0; d < rank; ++d) {
    e.check(w.strides[d] > 0, "needs positive strides");
    int64_t room = w.input[d] + w.padsBegin[d] + w.padsEnd[d] - w.dilations[d] * (kernel[d] - 1) - 1;
    e.check(room >= 0, "has a window larger than its padded input");
    w.output.push_back(room / w.strides[d] + 1);
  }
  return w;
}

// visit(input offset, output offset) for every output position whose input under the kernel tap lies inside.
template <typename Visit> void forEachPosition(const Window &w, const Ints &tap, Visit visit) {
  size_t rank = w.input.size();
  Ints inputStrides = rowMajorStrides(w.input);
  Ints outer(w.output.begin(), w.output.end() - (rank ? 1 : 0));
  int64_t row = rank ? w.output.back() : 1;
  forEachIndex(outer, [&](int64_t linear, const Ints &index) {
    int64_t base = 0;
    for (size_t d = 0; d < outer.size(); ++d) {
      int64_t at = index[d] * w.strides[d] - w.padsBegin[d] + tap[d] * w.dilations[d];
      if (at < 0 || at >= w.input[d]) return;
      base += at * inputStrides[d];
    }
    if (rank == 0) return visit(base, linear);
    int64_t shift = tap[rank - 1] * w.dilations[rank - 1] - w.padsBegin[rank - 1];
    for (int64_t i = 0; i < row; ++i) {
      int64_t at = i * w.strides[rank - 1] + shift;
      if (at >= 0 && at < w.input[rank - 1]) visit(base + at, linear * row + i);
    }
  });
}

// A convolution as products of matrices. For each sample and group, `unfolded` has a row for each channel and tap of
// the kernel and a column for each output position: y = w unfolded(x), and both gradients are the transposed products.
class Convolution {
public:
  Convolution(const Evaluation &e, const Ints &xShape, const Ints &wShape, const Ints &yShape) {
    e.check(xShape.size() >= 2 && wShape.size() == xShape.size(), "needs x and w of the same rank, at least 2");
    w = window(e, xShape, {wShape.begin() + 2, wShape.end()});
    const int64_t groups = e.integer("groups");
    e.check(groups > 0 && xShape[1] % groups == 0 && wShape[0] % groups == 0 && wShape[1] == xShape[1] / groups,
            "has channels that do not fit its groups");
    Ints expected{xShape[0], wShape[0]};
    expected.insert(expected.end(), w.output.begin(), w.output.end());
    e.check(yShape == expected, "has an output shape that does not fit");
    samples = xShape[0], parts = groups, channels = wShape[1], features = wShape[0] / groups;
    taps = elementCount(w.kernel), xPlane = elementCount(w.input), yPlane = elementCount(w.output);
    unfolded.resize(static_cast<size_t>(channels * taps * yPlane));
  }

  // y = w unfolded(x)
  void forward(const double *x, const double *weight, double *y) {
    forEachPart([&](int64_t group, int64_t xAt, int64_t yAt) {
      unfold(x + xAt);
      multiply(weights(weight, group), columns(), {y + yAt, yPlane, 1}, features, yPlane, channels * taps);
    });
  }
  // dx = fold(w' dy)
  void gradInput(const double *dy, const double *weight, double *dx) {
    forEachPart([&](int64_t group, int64_t xAt, int64_t yAt) {
      multiply(weights(weight, group).transposed(), {dy + yAt, yPlane, 1}, {unfolded.data(), yPlane, 1},
               channels * taps, yPlane, features);
      fold(dx + xAt);
    });
  }
  // dw = dy unfolded(x)', summed over samples
  void gradWeight(const double *x, const double *dy, double *dw) {
    forEachPart([&](int64_t group, int64_t xAt, int64_t yAt) {
      unfold(x + xAt);
      MatrixView<double> target{dw + group * features * channels * taps, channels * taps, 1};
      multiply({dy + yAt, yPlane, 1}, columns().transposed(), target, features, channels * taps, yPlane, true);
    });
  }

private:
  template <typename Visit> void forEachPart(Visit visit) const {
    for (int64_t part = 0; part < samples * parts; ++part)
      visit(part % parts, part * channels * xPlane, part * features * yPlane);
  }
  MatrixView<const double> weights(const double *weight, int64_t group) const {
    return {weight + group * features * channels * taps, channels * taps, 1};
  }
  MatrixView<const double> columns() const { return {unfolded.data(), yPlane, 1}; }

  // visit(channel, tap, position of the tap) for every row of `unfolded`; a channel's rows are one thread's.
  template <typename Visit> void forEachRow(Visit visit) const {
    parallelFor(channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        forEachIndex(w.kernel, [&](int64_t tap, const Ints &position) { visit(c, c * taps + tap, position); });
    });
  }
  void unfold(const double *x) {
    std::fill(unfolded.begin(), unfolded.end(), 0);
    forEachRow([&](int64_t channel, int64_t row, const Ints &tap) {
      double *to = unfolded.data() + row * yPlane;
      forEachPosition(w, tap, [&](int64_t in, int64_t out) { to[out] = x[channel * xPlane + in]; });
    });
  }
  void fold(double *x) const {
    forEachRow([&](int64_t channel, int64_t row, const Ints &tap) {
      const double *from = unfolded.data() + row * yPlane;
      forEachPosition(w, tap, [&](int64_t in, int64_t out) { x[channel * xPlane + in] += from[out]; });
    });
  }

  Window w;
  int64_t samples = 0, parts = 0;           // parts: groups
  int64_t channels = 0, features = 0;       // of one group
  int64_t taps = 0, xPlane = 0, yPlane = 0; // elements of a kernel, of an input's and of an output's channel
  std::vector<double> unfolded;
};

HostTensor conv(const Evaluation &e) {
  Reals x(e.operand(0)), w(e.operand(1));
  RealResult y(e.type);
  Convolution(e, e.operand(0).shape, e.operand(1).shape, e.type.shape).forward(x.data(), w.data(), y.data());
  return y.finish();
}
HostTensor convGradInput(const Evaluation &e) {
  Reals dy(e.operand(0)), w(e.operand(1));
  RealResult dx(e.type, 0);
  Convolution(e, e.ints("input_shape"), e.operand(1).shape, e.operand(0).shape)
      .gradInput(dy.data(), w.data(), dx.data());
  return dx.finish();
}
HostTensor convGradWeight(const Evaluation &e) {
  Reals x(e.operand(0)), dy(e.operand(1));
  RealResult dw(e.type, 0);
  Convolution(e, e.operand(0).shape, e.ints("weight_shape"), e.operand(1).shape)
      .gradWeight(x.data(), dy.data(), dw.data());
  return dw.finish();
}

// visit(plane's x offset, plane's y offset) for every sample and channel, on all threads
template <typename Visit> void forEachPlane(const Ints &shape, const Window &w, Visit visit) {
  int64_t xPlane = elementCount(w.input), yPlane = elementCount(w.output);
  parallelFor(shape[0] * shape[1], 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) visit(p * xPlane, p * yPlane);
  });
}

// For each output element of a plane the offset of its first maximum; -1 for a window wholly in the padding.
std::vector<int64_t> firstMaxima(const Reals &x, int64_t plane, const Window &w) {
  std::vector<int64_t> best(elementCount(w.output), -1);
  forEachIndex(w.kernel, [&](int64_t, const Ints &position) {
    forEachPosition(w, position, [&](int64_t in, int64_t out) {
      if (best[out] < 0 || x[plane + in] > x[plane + best[out]] ||
          (std::isnan(x[plane + in]) && !std::isnan(x[plane + best[out]])))
        best[out] = in;
    });
  });
  return best;
}

HostTensor maxPool(const Evaluation &e) {
  Reals x(e.operand(0));
  Window w = window(e, e.operand(0).shape, e.ints("kernel"));
  RealResult y(e.type, -std::numeric_limits<double>::infinity());
  double *out = y.data();
  forEachPlane(e.operand(0).shape, w, [&](int64_t from, int64_t to) {
    std::vector<int64_t> best = firstMaxima(x, from, w);
    for (size_t i = 0; i < best.size(); ++i)
      if (best[i] >= 0) out[to + i] = x[from + best[i]];
  });
  return y.finish();
}
HostTensor maxPoolGrad(const Evaluation &e) {
  Reals x(e.operand(0)), dy(e.operand(1));
  Window w = window(e, e.operand(0).shape, e.ints("kernel"));
  RealResult dx(e.type, 0);
  double *out = dx.data();
  forEachPlane(e.operand(0).shape, w, [&](int64_t to, int64_t from) {
    std::vector<int64_t> best = firstMaxima(x, to, w);
    for (size_t i = 0; i < best.size(); ++i)
      if (best[i] >= 0) out[to + best[i]] += dy[from + i];
  });
  return dx.finish();
}

// Elements that each window averages over.
std::vector<double> windowCounts(const Evaluation &e, const Window &w) {
  std::vector<double> counts(elementCount(w.output), e.flag("include_pad") ? double(elementCount(w.kernel)) : 0);
  if (!e.flag("include_pad"))
    forEachIndex(w.kernel, [&](int64_t, const Ints &position) {
      forEachPosition(w, position, [&](int64_t, int64_t out) { counts[out] += 1; });
    });
  return counts;
}

HostTensor averagePool(const Evaluation &e) {
  Reals x(e.operand(0));
  Window w = window(e, e.operand(0).shape, e.ints("kernel"));
  std::vector<double> counts = windowCounts(e, w);
  RealResult y(e.type, 0);
  double *result = y.data();
  forEachPlane(e.operand(0).shape, w, [&](int64_t from, int64_t to) {
    forEachIndex(w.kernel, [&](int64_t, const Ints &position) {
      forEachPosition(w, position, [&](int64_t in, int64_t out) { result[to + out] += x[from + in]; });
    });
    for (size_t i = 0; i < counts.size(); ++i) result[to + i] /= counts[i];
  });
  return y.finish();
}
HostTensor averagePoolGrad(const Evaluation &e) {
  Reals dy(e.operand(0));
  const Ints &shape = e.ints("input_shape");
  Window w = window(e, shape, e.ints("kernel"));
  std::vector<double> counts = windowCounts(e, w);
  RealResult dx(e.type, 0);
  double *result = dx.data();
  forEachPlane(shape, w, [&](int64_t to, int64_t from) {
    forEachIndex(w.kernel, [&](int64_t, const Ints &position) {
      forEachPosition(w, position, [&](int64_t in, int64_t out) { result[to + in] += dy[from + out] / counts[out]; });
    });
  });
  return dx.finish();
}

} // namespace

void addConvolutions(EvaluatorTable &table) {
  table["Conv"] = conv;
  table["ConvGradInput"] = convGradInput;
  table["ConvGradWeight"] = convGradWeight;
  table["MaxPool"] = maxPool;
  table["MaxPoolGrad"] = maxPoolGrad;
  table["AveragePool"] = averagePool;
  table["AveragePoolGrad"] = averagePoolGrad;
}

} // namespace cleave::runtime
