// Convolutions and pools over any number of spatial dimensions. All three convolutions visit the same (input, weight,
// output) triples and differ only in which of the three is added to.
#include "runtime/check/reference/evaluation.h"
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

// visit(x offset, w offset, y offset) for every product of the convolution of x by w.
template <typename Visit>
void forEachProduct(const Evaluation &e, const Ints &xShape, const Ints &wShape, const Ints &yShape, Visit visit) {
  e.check(xShape.size() >= 2 && wShape.size() == xShape.size(), "needs x and w of the same rank, at least 2");
  Window w = window(e, xShape, {wShape.begin() + 2, wShape.end()});
  int64_t groups = e.integer("groups"), channels = xShape[1], features = wShape[0];
  e.check(groups > 0 && channels % groups == 0 && features % groups == 0 && wShape[1] == channels / groups,
          "has channels that do not fit its groups");
  Ints expected{xShape[0], features};
  expected.insert(expected.end(), w.output.begin(), w.output.end());
  e.check(yShape == expected, "has an output shape that does not fit");
  int64_t xPlane = elementCount(w.input), yPlane = elementCount(w.output), taps = elementCount(w.kernel);
  for (int64_t n = 0; n < xShape[0]; ++n)
    for (int64_t o = 0; o < features; ++o)
      for (int64_t c = 0; c < wShape[1]; ++c) {
        int64_t x = (n * channels + o / (features / groups) * wShape[1] + c) * xPlane;
        int64_t y = (n * features + o) * yPlane, weight = (o * wShape[1] + c) * taps;
        forEachIndex(w.kernel, [&](int64_t tap, const Ints &position) {
          forEachPosition(w, position, [&](int64_t in, int64_t out) { visit(x + in, weight + tap, y + out); });
        });
      }
}

HostTensor conv(const Evaluation &e) {
  Reals x(e.operand(0)), w(e.operand(1));
  RealResult y(e.type);
  double *out = y.data();
  forEachProduct(e, e.operand(0).shape, e.operand(1).shape, e.type.shape,
                 [&](int64_t i, int64_t k, int64_t o) { out[o] += x[i] * w[k]; });
  return y.finish();
}
HostTensor convGradInput(const Evaluation &e) {
  Reals dy(e.operand(0)), w(e.operand(1));
  RealResult dx(e.type);
  double *out = dx.data();
  forEachProduct(e, e.ints("input_shape"), e.operand(1).shape, e.operand(0).shape,
                 [&](int64_t i, int64_t k, int64_t o) { out[i] += dy[o] * w[k]; });
  return dx.finish();
}
HostTensor convGradWeight(const Evaluation &e) {
  Reals x(e.operand(0)), dy(e.operand(1));
  RealResult dw(e.type);
  double *out = dw.data();
  forEachProduct(e, e.operand(0).shape, e.ints("weight_shape"), e.operand(1).shape,
                 [&](int64_t i, int64_t k, int64_t o) { out[k] += x[i] * dy[o]; });
  return dw.finish();
}

// visit(plane's x offset, plane's y offset) for every sample and channel
template <typename Visit> void forEachPlane(const Ints &shape, const Window &w, Visit visit) {
  int64_t xPlane = elementCount(w.input), yPlane = elementCount(w.output);
  for (int64_t p = 0; p < shape[0] * shape[1]; ++p) visit(p * xPlane, p * yPlane);
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
  RealResult dx(e.type);
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
  RealResult y(e.type);
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
  RealResult dx(e.type);
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
