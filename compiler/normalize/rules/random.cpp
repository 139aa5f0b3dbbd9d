// Dropout, from the counter-based generator: see normalize.h.
#include "compiler/normalize/node.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

// The ratio of a dropout that is active; 0: it is the identity. Before opset 12 the operator is the identity unless the
// recipe sets a ratio.
double ratioOf(Node &n) {
  if (n.state.options.dropout) return *n.state.options.dropout;
  if (n.version() < 12 || !n.has(2) || n.constantReal(2) == 0) return 0;
  return n.has(1) ? n.constantReal(1) : 0.5;
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
  Value key = n.state.dropoutKey;
  if (!key) {
    auto function = n.op->getParentOfType<func::FuncOp>();
    OpBuilder &builder = n.b.builder;
    NamedAttribute attributes[] = {builder.getNamedAttr("cleave.role", builder.getStringAttr("host")),
                                   builder.getNamedAttr("cleave.host", builder.getStringAttr("step")),
                                   builder.getNamedAttr("onnx.name", builder.getStringAttr("cleave.step"))};
    unsigned at = function.getNumArguments();
    auto type = RankedTensorType::get({2}, builder.getI64Type());
    if (failed(function.insertArgument(at, type, builder.getDictionaryAttr(attributes), n.op.getLoc())))
      throw Failure();
    key = n.state.dropoutKey = function.getArgument(at);
  }
  // Drawn in f32 whatever the type: the numbers are then the same in every precision.
  auto drawType = RankedTensorType::get(shapeOf(x), n.b.builder.getF32Type());
  Value draw =
      n.b.create<onnx::RandomUniformOp>(key, TypeAttr::get(drawType), n.b.builder.getI64IntegerAttr(n.state.dropouts++),
                                        DenseI64ArrayAttr(), ArrayAttr());
  Value kept = n.b.binary<onnx::LessOp>(draw, n.b.scalar(draw, 1 - ratio));
  Value factor = n.b.where(kept, n.b.scalar(x, 1 / (1 - ratio)), n.b.scalar(x, 0));
  results[0] = n.b.mul(x, factor);
  if (Operation *op = results[0].getDefiningOp()) op->setAttr("cleave.dropout", n.b.builder.getUnitAttr());
  if (results.size() > 1) results[1] = kept;
  return results;
}

} // namespace

void addRandom(Rules &rules) { rules.add("Dropout", dropout); }

} // namespace cleave::normalize
