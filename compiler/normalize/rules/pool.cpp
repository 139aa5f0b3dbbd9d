// Pools over windows and over whole images.
#include "compiler/normalize/window.h"
#include <cmath>

using namespace mlir;
namespace cleave::normalize {
namespace {

Window poolWindow(Node &n) {
  Value x = n.in(0);
  auto kernel = n.ints("kernel_shape");
  if (rankOf(x) < 3 || !kernel) n.fail("needs an operand [N, C, spatial] and kernel_shape");
  return windowOf(n, shapeOf(x).drop_front(2), *kernel);
}

// The flat index of each window's first largest element: the window's elements are compared one after the other.
Value indicesOfMaxima(Node &n, Value x, const Window &w, ArrayRef<int64_t> out) {
  const int64_t rank = rankOf(x), spatial = rank - 2;
  int64_t count = 1;
  for (int64_t size : w.kernel) n.needsFew(count *= size);
  n.writeOut(3 * count);
  Dims low(rank, 0), high(rank, 0), strides(rank, 1), steps(rank, 1);
  for (int64_t d = 0; d < spatial; ++d) {
    low[d + 2] = w.padsBegin[d];
    high[d + 2] = w.padsEnd[d];
    steps[d + 2] = w.strides[d];
  }
  const bool isColumnMajor = n.integer("storage_order", 0);
  int64_t plane = 1;
  for (int64_t i = 0; i < spatial; ++i) {
    const int64_t d = 2 + (isColumnMajor ? i : spatial - 1 - i);
    strides[d] = plane;
    plane *= shapeOf(x)[d];
  }
  strides[1] = plane;
  strides[0] = plane * shapeOf(x)[1];
  Value padded = n.b.pad(x, low, high, -INFINITY), base, best, offset;
  for (int64_t d = 0; d < rank; ++d) {
    Value along = n.b.mul(n.b.indexAlong(out, d), double(strides[d] * steps[d]));
    along = n.b.sub(along, double(low[d] * strides[d]));
    base = base ? n.b.add(base, along) : along;
  }
  for (int64_t k = 0; k < count; ++k) {
    Dims starts(rank, 0);
    int64_t distance = 0;
    for (int64_t d = spatial - 1, rest = k; d >= 0; --d) {
      starts[d + 2] = rest % w.kernel[d] * w.dilations[d];
      distance += starts[d + 2] * strides[d + 2];
      rest /= w.kernel[d];
    }
    Value here = n.b.create<onnx::SliceOp>(padded, w.attribute(n.b, starts), w.attribute(n.b, Dims(out)),
                                           w.attribute(n.b, steps));
    Value at = n.b.scalar(base, double(distance));
    if (!best) {
      best = here;
      offset = n.b.broadcastTo(at, out);
      continue;
    }
    Value isLarger = n.b.binary<onnx::GreaterOp>(here, best);
    best = n.b.where(isLarger, here, best);
    offset = n.b.where(isLarger, at, offset);
  }
  return n.b.add(base, offset);
}

Values maxPool(Node &n) {
  Window w = poolWindow(n);
  Value x = n.in(0);
  Type element = elementOf(x);
  if (!isFloatTensor(x)) x = n.b.cast(x, n.b.builder.getF32Type()); // 8-bit integers
  Value y = n.b.create<onnx::MaxPoolOp>(x, w.attribute(n.b, w.kernel), w.attribute(n.b, w.strides),
                                        w.attribute(n.b, w.padsBegin), w.attribute(n.b, w.padsEnd),
                                        w.attribute(n.b, w.dilations));
  Values results{n.b.cast(y, element)};
  if (n.outputs() > 1 && !n.op.getResult(1).use_empty()) results.push_back(indicesOfMaxima(n, x, w, shapeOf(y)));
  results.resize(n.outputs());
  return results;
}

// How many elements of the input with its explicit padding each window along dimension d covers.
SmallVector<double> coverage(const Window &w, size_t d, int64_t size) {
  int64_t padded = w.padsBegin[d] + size + w.padsEnd[d] - w.extraEnd[d];
  int64_t outputs = (padded + w.extraEnd[d] - (w.kernel[d] - 1) * w.dilations[d] - 1) / w.strides[d] + 1;
  SmallVector<double> counts;
  for (int64_t o = 0; o < outputs; ++o) {
    int64_t count = 0;
    for (int64_t k = 0; k < w.kernel[d]; ++k) count += o * w.strides[d] + k * w.dilations[d] < padded;
    counts.push_back(double(count));
  }
  return counts;
}

Values averagePool(Node &n) {
  Window w = poolWindow(n);
  Value x = n.in(0);
  bool includePad = n.integer("count_include_pad", 0);
  Value y = n.b.create<onnx::AveragePoolOp>(x, w.attribute(n.b, w.kernel), w.attribute(n.b, w.strides),
                                            w.attribute(n.b, w.padsBegin), w.attribute(n.b, w.padsEnd),
                                            w.attribute(n.b, w.dilations), n.b.builder.getBoolAttr(includePad));
  // Windows that ceil_mode lets hang over the padding do not count what is outside of it.
  if (includePad)
    for (size_t d = 0; d < w.kernel.size(); ++d) {
      if (w.extraEnd[d] == 0) continue;
      n.needsFew(shapeOf(y)[d + 2]);
      n.needsFew(shapeOf(y)[d + 2] * w.kernel[d]);
      SmallVector<double> counts = coverage(w, d, shapeOf(x)[d + 2]);
      std::vector<double> factors;
      for (double count : counts) factors.push_back(double(w.kernel[d]) / count);
      Value row = n.b.constant(runtime::HostTensor::ofReals(dtypeOf(elementOf(x)), {int64_t(factors.size())}, factors));
      Value whole = n.b.create<onnx::BroadcastOp>(row, n.b.builder.getDenseI64ArrayAttr(shapeOf(y)),
                                                  n.b.builder.getDenseI64ArrayAttr({int64_t(d + 2)}));
      y = n.b.mul(y, whole);
    }
  return {y};
}

Dims spatialAxes(Node &n) {
  if (rankOf(n.in(0)) < 3) n.fail("needs an operand [N, C, spatial]");
  Dims all = countUp(rankOf(n.in(0)));
  return Dims(ArrayRef(all).drop_front(2));
}
Values globalAverage(Node &n) { return {n.b.mean(n.in(0), spatialAxes(n), true)}; }
Values globalMax(Node &n) { return {n.b.reduceMax(n.in(0), spatialAxes(n), true)}; }

Value toPower(Node &n, Value x, double p) {
  if (p == 1) return x;
  return p == 2 ? n.b.mul(x, x) : n.b.binary<onnx::PowOp>(x, n.b.scalar(x, p));
}
// total^(1/p), with derivative 0 at 0.
Value rootOf(Node &n, Value total, double p) {
  if (p == 1) return total;
  Value isSome = n.b.binary<onnx::GreaterOp>(total, n.b.scalar(total, 0));
  Value some = n.b.where(isSome, total, n.b.scalar(total, 1));
  Value root = p == 2 ? n.b.unary<onnx::SqrtOp>(some) : n.b.binary<onnx::PowOp>(some, n.b.scalar(some, 1 / p));
  return n.b.where(isSome, root, n.b.scalar(total, 0));
}
double orderOf(Node &n) { // a real number in opset 1
  const double p = isa_and_nonnull<FloatAttr>(n.attribute("p")) ? n.real("p", 2) : double(n.integer("p", 2));
  if (!(p >= 1)) n.fail("its attribute 'p' must be 1 or more");
  return p;
}
Values lpPool(Node &n) {
  Window w = poolWindow(n);
  const double p = orderOf(n);
  double count = 1;
  for (int64_t size : w.kernel) count *= double(size);
  Value mean = n.b.create<onnx::AveragePoolOp>(toPower(n, n.b.unary<onnx::AbsOp>(n.in(0)), p),
                                               w.attribute(n.b, w.kernel), w.attribute(n.b, w.strides),
                                               w.attribute(n.b, w.padsBegin), w.attribute(n.b, w.padsEnd),
                                               w.attribute(n.b, w.dilations), n.b.builder.getBoolAttr(true));
  return {rootOf(n, n.b.mul(mean, count), p)};
}
Values globalLpPool(Node &n) {
  const double p = orderOf(n);
  Value powers = toPower(n, n.b.unary<onnx::AbsOp>(n.in(0)), p);
  return {rootOf(n, n.b.reduceSum(powers, spatialAxes(n), true), p)};
}

// Each column's elements added where the window took them from: the gradient of a convolution whose weights pick one
// element each.
Values col2Im(Node &n) {
  Value x = n.in(0);
  const Dims image = n.constantInts(1), block = n.constantInts(2);
  if (rankOf(x) != 3 || block.size() != image.size()) n.fail("needs [N, C, columns] and sizes of one length");
  int64_t taps = 1, columns = 1;
  for (int64_t size : block) {
    if (size < 1) n.fail("its block must be 1 or more along each dimension");
    n.needsFew(taps *= size);
  }
  if (shapeOf(x)[1] % taps) n.fail("its channels do not divide into blocks of " + Twine(taps));
  const int64_t batch = shapeOf(x)[0], channels = shapeOf(x)[1] / taps;
  Window w = windowOf(n, image, block);
  Dims folded{batch, channels * taps}, shape{batch, channels}, kernel{channels * taps, 1};
  for (size_t d = 0; d < image.size(); ++d) {
    const int64_t room = image[d] + w.padsBegin[d] + w.padsEnd[d] - (block[d] - 1) * w.dilations[d] - 1;
    folded.push_back(room < 0 ? 0 : room / w.strides[d] + 1);
    columns *= folded.back();
  }
  if (columns != shapeOf(x)[2]) n.fail("has " + Twine(shapeOf(x)[2]) + " columns, its image has " + Twine(columns));
  llvm::append_range(shape, image);
  llvm::append_range(kernel, block);
  Type element = elementOf(x), inside = isFloatTensor(x) ? element : Type(n.b.builder.getF64Type());
  n.needsFew(taps * taps);
  Value picks = n.b.binary<onnx::EqualOp>(n.b.indexAlong({taps, taps}, 0), n.b.indexAlong({taps, taps}, 1));
  Value weight = n.b.reshape(n.b.broadcastTo(n.b.cast(picks, inside), {channels, taps, taps}), kernel);
  Value y = n.b.create<onnx::ConvGradInputOp>(n.b.reshape(n.b.cast(x, inside), folded), weight, w.attribute(n.b, shape),
                                              w.attribute(n.b, w.strides), w.attribute(n.b, w.padsBegin),
                                              w.attribute(n.b, w.padsEnd), w.attribute(n.b, w.dilations),
                                              n.b.builder.getI64IntegerAttr(channels));
  return {n.b.cast(y, element)};
}

} // namespace

void addPools(Rules &rules) {
  rules.add("MaxPool", maxPool);
  rules.add("AveragePool", averagePool);
  rules.add("LpPool", lpPool);
  rules.add("GlobalLpPool", globalLpPool);
  rules.add("Col2Im", col2Im);
  rules.add("GlobalAveragePool", globalAverage);
  rules.add("GlobalMaxPool", globalMax);
}

} // namespace cleave::normalize
