// Dropout and random numbers, from the counter-based generator: see normalize.h.
#include "compiler/normalize/node.h"
#include "dialects/onnx/file_keys.h"
#include <numbers>

using namespace mlir;
namespace cleave::normalize {
namespace {

// The ratio of a dropout that is active; 0: it is the identity. Before opset 12 the operator is the identity unless the
// recipe sets a ratio.
double ratioOf(Node &n) {
  if (n.state.dropout >= 0 && !onnx::adapterDropoutAttr.isOn(n.op)) return n.state.dropout;
  if (n.version() < 12 || !n.has(2) || n.constantReal(2) == 0) return 0;
  return n.has(1) ? n.constantReal(1) : 0.5;
}

// Uniform in [0, 1), in f32 whatever the type: the numbers are then the same in every precision. The first node that
// draws gives the function its key; each has a stream of its own.
Value drawn(Node &n, ArrayRef<int64_t> shape) {
  Value key = n.state.drawKey;
  if (!key) {
    auto function = n.op->getParentOfType<func::FuncOp>();
    OpBuilder &builder = n.b.builder;
    NamedAttribute attributes[] = {onnx::hostAttr.named(builder.getContext(), "step"),
                                   onnx::nameAttr.named(builder.getContext(), onnx::stepInput)};
    unsigned at = function.getNumArguments();
    auto type = RankedTensorType::get({2}, builder.getI64Type());
    if (failed(function.insertArgument(at, type, builder.getDictionaryAttr(attributes), n.op.getLoc())))
      throw Failure();
    key = n.state.drawKey = function.getArgument(at);
  }
  n.b.checkSize(shape);
  auto type = RankedTensorType::get(shape, n.b.builder.getF32Type());
  return n.b.create<onnx::RandomUniformOp>(key, TypeAttr::get(type), n.b.builder.getI64IntegerAttr(n.state.draws++),
                                           DenseI64ArrayAttr(), ArrayAttr());
}

Values dropout(Node &n) {
  Value x = n.in(0);
  double ratio = ratioOf(n);
  if (!(ratio >= 0 && ratio < 1)) n.fail("its ratio must be in [0, 1)");
  RankedTensorType mask = typeOf(x).clone(n.b.builder.getI1Type());
  Values results(n.outputs());
  if (ratio == 0) {
    results[0] = x;
    if (results.size() > 1) results[1] = n.b.splat(mask, 1);
    return results;
  }
  Value draw = drawn(n, shapeOf(x));
  Value kept = n.b.binary<onnx::LessOp>(draw, n.b.scalar(draw, 1 - ratio));
  Value factor = n.b.where(kept, n.b.scalar(x, 1 / (1 - ratio)), n.b.scalar(x, 0));
  results[0] = n.b.mul(x, factor);
  // Of ones, a mask of channels or samples, the factor is left: RecognizeDropout sees what it is multiplied with.
  if (auto op = results[0].getDefiningOp<onnx::MulOp>(); op && op.getA() == x) onnx::dropoutAttr.set(op);
  if (results.size() > 1) results[1] = kept;
  return results;
}

// --- random numbers of the graph: the recipe's seed and the step decide them, whatever the node's own seed is

Type drawType(Node &n, bool isLike) {
  Type type = n.attribute("dtype")               ? n.elementType(n.integer("dtype", 0))
              : isLike && isFloatTensor(n.in(0)) ? elementOf(n.in(0))
                                                 : Type(n.b.builder.getF32Type());
  if (!isa<FloatType>(type)) n.fail("draws numbers that are no floats");
  return type;
}
Dims drawShape(Node &n, bool isLike) { return isLike ? Dims(shapeOf(n.in(0))) : n.ints("shape", Dims()); }

template <bool isLike> Values randomUniform(Node &n) {
  const double low = n.real("low", 0), high = n.real("high", 1);
  Type type = drawType(n, isLike);
  return {n.b.cast(n.b.add(n.b.mul(drawn(n, drawShape(n, isLike)), high - low), low), type)};
}
// Box and Muller: sqrt(-2 log(1 - u)) cos(2 pi v).
template <bool isLike> Values randomNormal(Node &n) {
  const Dims shape = drawShape(n, isLike);
  Type type = drawType(n, isLike);
  Value u = drawn(n, shape), v = drawn(n, shape);
  Value size = n.b.mul(n.b.unary<onnx::LogOp>(n.b.sub(n.b.scalar(u, 1), u)), -2);
  Value turn = n.b.unary<onnx::CosOp>(n.b.mul(v, 2 * std::numbers::pi));
  Value normal = n.b.mul(n.b.unary<onnx::SqrtOp>(size), turn);
  return {n.b.cast(n.b.add(n.b.mul(normal, n.real("scale", 1)), n.real("mean", 0)), type)};
}
Values bernoulli(Node &n) {
  Value p = n.in(0), draw = drawn(n, shapeOf(p));
  Type type = n.attribute("dtype") ? n.elementType(n.integer("dtype", 0)) : elementOf(p);
  return {n.b.cast(n.b.binary<onnx::LessOp>(n.b.cast(draw, elementOf(p)), p), type)};
}

} // namespace

void addRandom(Rules &rules) {
  rules.addPerElement("Dropout", dropout);
  rules.add("RandomUniform", randomUniform<false>);
  rules.add("RandomUniformLike", randomUniform<true>);
  rules.add("RandomNormal", randomNormal<false>);
  rules.add("RandomNormalLike", randomNormal<true>);
  rules.add("Bernoulli", bernoulli);
}

} // namespace cleave::normalize
