// Normalizations without running statistics. Statistics of 16-bit tensors are computed in f32 (stash_type).
#include "compiler/normalize/node.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

Value wide(Node &n, Value x) {
  return elementOf(x).getIntOrFloatBitWidth() < 32 ? n.b.cast(x, n.b.builder.getF32Type()) : x;
}

struct Normalized {
  Value y, mean, inverse; // mean and 1/std keep their dimensions as 1
};
Normalized standardize(Node &n, Value x, ArrayRef<int64_t> axes, double epsilon) {
  Value mean = n.b.mean(x, axes, true), centred = n.b.sub(x, mean);
  Value variance = n.b.mean(n.b.mul(centred, centred), axes, true);
  Value inverse = n.b.unary<onnx::RsqrtOp>(n.b.add(variance, epsilon));
  return {n.b.mul(centred, inverse), mean, inverse};
}

Dims axesFrom(int64_t first, int64_t rank) {
  Dims axes;
  for (int64_t a = first; a < rank; ++a) axes.push_back(a);
  return axes;
}

// y of the last dimensions from `axis` on, scaled and shifted, with what the statistics were.
Values layerNormalized(Node &n, Value x, int64_t axis, Value scale, Value shift) {
  const int64_t rank = rankOf(x);
  Normalized r = standardize(n, wide(n, x), axesFrom(n.axis(axis, rank), rank), n.real("epsilon", 1e-5));
  Value y = n.b.mul(n.b.cast(r.y, elementOf(x)), scale);
  return {shift ? n.b.add(y, shift) : y, r.mean, r.inverse};
}
Value rmsNormalized(Node &n, Value x, int64_t axis, Value scale) {
  const int64_t rank = rankOf(x);
  Value work = wide(n, x), square = n.b.mean(n.b.mul(work, work), axesFrom(n.axis(axis, rank), rank), true);
  Value y = n.b.mul(work, n.b.unary<onnx::RsqrtOp>(n.b.add(square, n.real("epsilon", 1e-5))));
  return n.b.mul(n.b.cast(y, elementOf(x)), scale);
}

Values layerNormalization(Node &n) {
  Values results = layerNormalized(n, n.in(0), n.integer("axis", -1), n.in(1), n.has(2) ? n.in(2) : Value());
  results.resize(n.outputs());
  return results;
}
Values rmsNormalization(Node &n) {
  Values results{rmsNormalized(n, n.in(0), n.integer("axis", -1), n.in(1))};
  results.resize(n.outputs());
  return results;
}

// onnxruntime's, of a sum with what is skipped (and a bias), which is an output, too.
Value skippedSum(Node &n, size_t bias) {
  Value sum = n.b.add(n.in(0), n.in(1));
  if (shapeOf(sum) != shapeOf(n.in(0))) n.fail("its skip does not fit its input");
  return n.has(bias) ? n.b.add(sum, n.in(bias)) : sum;
}
Values skipLayerNormalization(Node &n) {
  Value sum = skippedSum(n, 4);
  Values results = layerNormalized(n, sum, -1, n.in(2), n.has(3) ? n.in(3) : Value());
  results.push_back(sum);
  results.resize(n.outputs());
  return results;
}
Values skipRmsNormalization(Node &n) {
  Value sum = skippedSum(n, 3);
  Values results{rmsNormalized(n, sum, -1, n.in(2)), Value(), Value(), sum};
  results.resize(n.outputs());
  return results;
}

// v[C] along dimension 1 of a tensor of `shape`
Value alongChannels(Node &n, Value v, ArrayRef<int64_t> shape) {
  return n.b.create<onnx::BroadcastOp>(v, n.b.builder.getDenseI64ArrayAttr(shape),
                                       n.b.builder.getDenseI64ArrayAttr({1}));
}

Values instanceNormalization(Node &n) {
  Value x = n.in(0), work = wide(n, x);
  Value y = n.b.cast(standardize(n, work, axesFrom(2, rankOf(x)), n.real("epsilon", 1e-5)).y, elementOf(x));
  return {n.b.add(n.b.mul(y, alongChannels(n, n.in(1), shapeOf(x))), alongChannels(n, n.in(2), shapeOf(x)))};
}

Values groupNormalization(Node &n) {
  Value x = n.in(0), work = wide(n, x);
  int64_t groups = n.integer("num_groups", 1), channels = shapeOf(x)[1];
  if (groups < 1 || channels % groups) n.fail("its channels do not divide into groups");
  Dims grouped{shapeOf(x)[0], groups, channels / groups};
  llvm::append_range(grouped, shapeOf(x).drop_front(2));
  Value y = standardize(n, n.b.reshape(work, grouped), axesFrom(2, int64_t(grouped.size())), n.real("epsilon", 1e-5)).y;
  y = n.b.cast(n.b.reshape(y, shapeOf(x)), elementOf(x));
  Value scale = n.in(1), bias = n.in(2);
  if (shapeOf(scale)[0] != channels) { // opset 18: one a group
    auto each = [&](Value v) {
      Value repeated = n.b.create<onnx::BroadcastOp>(v, n.b.builder.getDenseI64ArrayAttr({groups, channels / groups}),
                                                     n.b.builder.getDenseI64ArrayAttr({0}));
      return n.b.reshape(repeated, {channels});
    };
    for (size_t i : {1, 2}) n.needsShape(i, {groups});
    scale = each(scale);
    bias = each(bias);
  }
  return {n.b.add(n.b.mul(y, alongChannels(n, scale, shapeOf(x))), alongChannels(n, bias, shapeOf(x)))};
}

Values lpNormalization(Node &n) {
  Value x = n.in(0);
  Dims axes{n.axis(n.integer("axis", -1), rankOf(x))};
  int64_t p = n.integer("p", 2);
  if (p != 1 && p != 2) n.fail("p must be 1 or 2");
  Value norm = p == 1 ? n.b.reduceSum(n.b.unary<onnx::AbsOp>(x), axes, true)
                      : n.b.unary<onnx::SqrtOp>(n.b.reduceSum(n.b.mul(x, x), axes, true));
  Value isZero = n.b.binary<onnx::EqualOp>(norm, n.b.scalar(norm, 0)); // a zero vector stays zero
  return {n.b.div(x, n.b.where(isZero, n.b.scalar(norm, 1), norm))};
}

// x / (bias + alpha/size * sum of squares over neighbouring channels)^beta
Values localResponseNormalization(Node &n) {
  Value x = n.in(0), square = n.b.mul(x, x);
  int64_t size = n.integer("size", 1), rank = rankOf(x);
  Dims low(rank, 0), high(rank, 0);
  n.writeOut(size);
  low[1] = (size - 1) / 2;
  high[1] = size - 1 - low[1];
  Value padded = n.b.pad(square, low, high, 0), total;
  for (int64_t i = 0; i < size; ++i) {
    Value part = n.b.slice(padded, 1, i, shapeOf(x)[1]);
    total = total ? n.b.add(total, part) : part;
  }
  Value base = n.b.add(n.b.mul(total, n.real("alpha", 1e-4) / double(size)), n.real("bias", 1));
  return {n.b.div(x, n.b.binary<onnx::PowOp>(base, n.b.scalar(x, n.real("beta", 0.75))))};
}

} // namespace

void addNormalizations(Rules &rules) {
  rules.add("LayerNormalization", layerNormalization);
  rules.add("RMSNormalization", rmsNormalization);
  rules.add("SimplifiedLayerNormalization", rmsNormalization);
  rules.add("SkipLayerNormalization", skipLayerNormalization, "com.microsoft");
  rules.add("SkipSimplifiedLayerNormalization", skipRmsNormalization, "com.microsoft");
  rules.add("InstanceNormalization", instanceNormalization);
  rules.add("GroupNormalization", groupNormalization);
  rules.add("LpNormalization", lpNormalization);
  rules.add("LRN", localResponseNormalization);
}

} // namespace cleave::normalize
