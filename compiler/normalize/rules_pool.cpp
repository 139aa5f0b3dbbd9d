// Pools over windows and over whole images.
#include "compiler/normalize/window.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

Window poolWindow(Node &n) {
  Value x = n.in(0);
  auto kernel = n.ints("kernel_shape");
  if (rankOf(x) < 3 || !kernel) n.fail("needs an operand [N, C, spatial] and kernel_shape");
  return windowOf(n, shapeOf(x).drop_front(2), *kernel);
}

Values maxPool(Node &n) {
  if (n.outputs() > 1 && !n.op.getResult(1).use_empty()) n.fail("its output Indices is not supported");
  Window w = poolWindow(n);
  Value x = n.in(0);
  Type element = elementOf(x);
  if (!isFloatTensor(x)) x = n.b.cast(x, n.b.builder.getF32Type()); // 8-bit integers
  Value y = n.b.create<onnx::MaxPoolOp>(x, w.attribute(n.b, w.kernel), w.attribute(n.b, w.strides),
                                        w.attribute(n.b, w.padsBegin), w.attribute(n.b, w.padsEnd),
                                        w.attribute(n.b, w.dilations));
  Values results{n.b.cast(y, element)};
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

} // namespace

void addPools(Rules &rules) {
  rules.add("MaxPool", maxPool);
  rules.add("AveragePool", averagePool);
  rules.add("GlobalAveragePool", globalAverage);
  rules.add("GlobalMaxPool", globalMax);
}

} // namespace cleave::normalize
