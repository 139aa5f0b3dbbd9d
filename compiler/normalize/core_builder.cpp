#include "compiler/normalize/core_builder.h"
#include "dialects/onnx/kinds.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Rewrite/FrozenRewritePatternSet.h"

using namespace mlir;
namespace cleave::normalize {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
ArrayRef<int64_t> shapeOf(Value value) { return typeOf(value).getShape(); }
Type elementOf(Value value) { return typeOf(value).getElementType(); }
int64_t rankOf(Value value) { return typeOf(value).getRank(); }
bool isFloatTensor(Value value) { return isa<FloatType>(elementOf(value)); }
Dims countUp(int64_t count) {
  Dims dims(count);
  for (int64_t i = 0; i < count; ++i) dims[i] = i;
  return dims;
}

std::optional<int64_t> elementsWithin(ArrayRef<int64_t> shape) {
  // A dimension of 0 does not make up for others: strides are products, too.
  int64_t count = 1, reach = 1;
  for (int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(reach, std::max<int64_t>(size, 1), &reach) || reach > mostElements)
      return std::nullopt;
    count *= size;
  }
  return count;
}

std::optional<Dims> broadcastShape(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  Dims result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) { // from the back
    int64_t left = i < a.size() ? a[a.size() - 1 - i] : 1, right = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (left != right && left != 1 && right != 1) return std::nullopt;
    result[result.size() - 1 - i] = left == 1 ? right : left;
  }
  return result;
}

static std::string text(ArrayRef<int64_t> shape) {
  std::string out = "[";
  for (auto [i, size] : llvm::enumerate(shape)) out += (i ? "," : "") + std::to_string(size);
  return out + "]";
}

void CoreBuilder::fail(const Twine &message) {
  emitError(loc) << message;
  throw Failure();
}

void CoreBuilder::checkSize(ArrayRef<int64_t> shape) {
  if (!elementsWithin(shape))
    fail("makes a tensor of shape " + text(shape) + "; at most " + Twine(mostElements) + " elements are supported");
}

namespace {

// Brings an op that was just made into its simplest form by the dialect's folders and patterns, and what patterns make
// for it, operands first: constants fold on the way. (MLIR's greedy driver takes what was made last first, and does not
// say what the op became.)
class Simplifier : public RewriterBase::Listener {
public:
  explicit Simplifier(CoreBuilder &b)
      : b(b), rewriter(b.builder.getContext()),
        patterns(b.builder.getContext()->getLoadedDialect<onnx::OnnxDialect>()->getPatterns()) {
    rewriter.setListener(this);
  }

  // What the op's result is then.
  Value simplify(Operation *op) {
    if (onnx::isConstant(op)) return op->getResult(0);
    SmallVector<OpFoldResult> folded;
    do {
      replacement = {};
      while (succeeded(op->fold(folded)))
        if (!folded.empty()) return replace(op, folded[0]);
    } while (rewrite(op) && !replacement);
    if (!replacement) {
      DenseElementsAttr constant = foldOp(op, b.foldLimit);
      return constant ? replace(op, constant) : op->getResult(0);
    }
    Value result = replacement;
    for (Operation *part : std::exchange(made, {})) {
      bool isResult = part->getResult(0) == result;
      Value simple = simplify(part);
      if (isResult) result = simple;
    }
    return result;
  }

private:
  bool rewrite(Operation *op) {
    auto known = patterns.getOpSpecificNativePatterns().find(op->getName());
    if (known == patterns.getOpSpecificNativePatterns().end()) return false;
    rewriter.setInsertionPoint(op);
    return llvm::any_of(known->second,
                        [&](const RewritePattern *one) { return succeeded(one->matchAndRewrite(op, rewriter)); });
  }
  Value replace(Operation *op, OpFoldResult by) {
    OpBuilder::InsertionGuard guard(b.builder);
    b.builder.setInsertionPoint(op);
    auto value = dyn_cast<Value>(by);
    if (!value) value = b.compactConstant(cast<DenseElementsAttr>(cast<Attribute>(by)));
    op->getResult(0).replaceAllUsesWith(value);
    op->erase();
    return value;
  }

  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint previous) override {
    made.push_back(op);
    if (auto *outer = b.builder.getListener()) outer->notifyOperationInserted(op, previous);
  }
  using RewriterBase::Listener::notifyOperationReplaced;
  void notifyOperationReplaced(Operation *, ValueRange by) override { replacement = by.front(); }

  CoreBuilder &b;
  PatternRewriter rewriter;
  const FrozenRewritePatternSet &patterns;
  SmallVector<Operation *> made; // by a pattern
  Value replacement;             // of its root
};

} // namespace

Value CoreBuilder::finish(OperationState &state, Infer infer) {
  SmallVector<Type> types;
  MLIRContext *context = builder.getContext();
  if (failed(infer(context, loc, state.operands, state.attributes.getDictionary(context), state.getRawProperties(),
                   state.regions, types)))
    throw Failure();
  for (Type type : types) checkSize(cast<RankedTensorType>(type).getShape());
  state.types.assign(types.begin(), types.end());
  return Simplifier(*this).simplify(builder.create(state));
}

Value CoreBuilder::constant(DenseElementsAttr value) {
  if (budget && !value.isSplat()) {
    budget->bytesLeft -= int64_t(value.getRawData().size());
    if (budget->bytesLeft < 0)
      fail("the constants that the model's nodes make take more than " + Twine(ConstantBudget::whole >> 30) + " GiB");
  }
  OperationState state(loc, onnx::ConstantOp::getOperationName());
  onnx::ConstantOp::build(builder, state, value.getType(), value);
  return builder.create(state)->getResult(0);
}
Value CoreBuilder::compactConstant(DenseElementsAttr value) {
  constexpr int64_t smallEnough = 256;
  auto type = cast<RankedTensorType>(value.getType());
  if (value.isSplat() || value.getNumElements() <= smallEnough) return constant(value);
  Dims dims = varyingDims(value), shape;
  for (int64_t d : dims) shape.push_back(type.getDimSize(d));
  auto small = type.clone(shape);
  if (small.getNumElements() == type.getNumElements()) return constant(value);
  // the first element along every repeated dimension
  runtime::HostTensor whole = toHostTensor(value),
                      part = runtime::HostTensor::zeros(whole.dtype, {shape.begin(), shape.end()});
  std::vector<int64_t> strides = runtime::rowMajorStrides(whole.shape);
  int64_t bytes = runtime::byteSize(whole.dtype), at = 0;
  for (int64_t i = 0, n = whole.elements(); i < n; ++i) {
    bool first = true;
    for (size_t d = 0; first && d < strides.size(); ++d)
      first = llvm::is_contained(dims, int64_t(d)) || i / strides[d] % whole.shape[d] == 0;
    if (first) std::copy_n(whole.data.begin() + i * bytes, bytes, part.data.begin() + bytes * at++);
  }
  return create<onnx::BroadcastOp>(constant(toAttribute(part, small)), builder.getDenseI64ArrayAttr(type.getShape()),
                                   builder.getDenseI64ArrayAttr(dims));
}
Value CoreBuilder::constant(const runtime::HostTensor &value) {
  Type element = elementTypeOf(builder.getContext(), value.dtype);
  return constant(toAttribute(value, RankedTensorType::get(value.shape, element)));
}
Value CoreBuilder::splat(RankedTensorType type, double value) {
  checkSize(type.getShape());
  auto element = runtime::HostTensor::ofReals(dtypeOf(type.getElementType()), {}, {value});
  return constant(toAttribute(element, RankedTensorType::get({}, type.getElementType())).resizeSplat(type));
}
Value CoreBuilder::scalar(Value like, double value) { return splat(RankedTensorType::get({}, elementOf(like)), value); }
Value CoreBuilder::integers(ArrayRef<int64_t> values) {
  auto type = RankedTensorType::get({int64_t(values.size())}, builder.getI64Type());
  return constant(DenseElementsAttr::get(type, values));
}

Value CoreBuilder::indexAlong(ArrayRef<int64_t> shape, int64_t dim) {
  checkSize(shape);
  if (shape[dim] > demandFoldLimit)
    fail("counts along " + Twine(shape[dim]) + " elements; at most " + Twine(demandFoldLimit) + " are supported");
  return create<onnx::BroadcastOp>(integers(countUp(shape[dim])), builder.getDenseI64ArrayAttr(shape),
                                   builder.getDenseI64ArrayAttr({dim}));
}

Value CoreBuilder::where(Value condition, Value a, Value b) {
  broadcastTogether({&condition, &a, &b});
  return create<onnx::WhereOp>(condition, a, b);
}
Value CoreBuilder::cast(Value x, Type to) {
  return elementOf(x) == to ? x : create<onnx::CastOp>(x, TypeAttr::get(to));
}

Value CoreBuilder::reshape(Value x, ArrayRef<int64_t> shape) {
  return shapeOf(x) == shape ? x : create<onnx::ReshapeOp>(x, builder.getDenseI64ArrayAttr(shape));
}
Value CoreBuilder::transpose(Value x, ArrayRef<int64_t> perm) {
  return create<onnx::TransposeOp>(x, builder.getDenseI64ArrayAttr(perm));
}

Value CoreBuilder::broadcastTo(Value x, ArrayRef<int64_t> shape) {
  ArrayRef<int64_t> from = shapeOf(x);
  if (from == shape) return x;
  int64_t shift = int64_t(shape.size()) - int64_t(from.size());
  if (shift < 0) fail("cannot broadcast " + text(from) + " to " + text(shape));
  Dims kept, dims;
  for (auto [d, size] : llvm::enumerate(from)) {
    int64_t target = shape[d + shift];
    if (size != target && size != 1) fail("cannot broadcast " + text(from) + " to " + text(shape));
    if (size != target) continue; // a size of 1 that grows: reshaped away
    kept.push_back(size);
    dims.push_back(d + shift);
  }
  Value squeezed = reshape(x, kept);
  return create<onnx::BroadcastOp>(squeezed, builder.getDenseI64ArrayAttr(shape), builder.getDenseI64ArrayAttr(dims));
}

void CoreBuilder::broadcastTogether(ArrayRef<Value *> values) {
  Dims shape(shapeOf(*values[0]));
  for (Value *value : values.drop_front()) {
    auto both = broadcastShape(shape, shapeOf(*value));
    if (!both) fail("shapes " + text(shape) + " and " + text(shapeOf(*value)) + " do not broadcast");
    shape = *both;
  }
  for (Value *value : values) *value = broadcastTo(*value, shape);
}

Value CoreBuilder::slice(Value x, int64_t axis, int64_t start, int64_t size) {
  Dims starts(rankOf(x), 0), sizes(shapeOf(x));
  starts[axis] = start;
  sizes[axis] = size;
  return sliceAll(x, starts, sizes);
}
Value CoreBuilder::sliceAll(Value x, ArrayRef<int64_t> starts, ArrayRef<int64_t> sizes) {
  Dims steps(starts.size(), 1);
  return create<onnx::SliceOp>(x, builder.getDenseI64ArrayAttr(starts), builder.getDenseI64ArrayAttr(sizes),
                               builder.getDenseI64ArrayAttr(steps));
}
Value CoreBuilder::pad(Value x, ArrayRef<int64_t> low, ArrayRef<int64_t> high, double value) {
  Dims interior(low.size(), 0);
  return create<onnx::PadOp>(x, builder.getDenseI64ArrayAttr(low), builder.getDenseI64ArrayAttr(high),
                             builder.getDenseI64ArrayAttr(interior), builder.getF64FloatAttr(value));
}
Value CoreBuilder::concat(ValueRange parts, int64_t axis) {
  return create<onnx::ConcatOp>(parts, builder.getI64IntegerAttr(axis));
}
Value CoreBuilder::pick(Value x, int64_t axis, ArrayRef<int64_t> indices) { return gather(x, integers(indices), axis); }
Value CoreBuilder::gather(Value table, Value indices, int64_t axis, int64_t batchDims, int64_t paddingRow) {
  return create<onnx::GatherOp>(table, indices, builder.getI64IntegerAttr(axis), ArrayAttr(), IntegerAttr(),
                                builder.getI64IntegerAttr(batchDims), builder.getI64IntegerAttr(paddingRow));
}
Value CoreBuilder::insertOnes(Value x, ArrayRef<int64_t> axes) {
  Dims shape(shapeOf(x));
  for (int64_t axis : axes) shape.insert(shape.begin() + axis, 1);
  return reshape(x, shape);
}

Value CoreBuilder::keepDims(Value reduced, Value x, ArrayRef<int64_t> axes, bool keep) {
  if (!keep) return reduced;
  Dims shape(shapeOf(x));
  for (int64_t axis : axes) shape[axis] = 1;
  return reshape(reduced, shape);
}
Value CoreBuilder::reduceSum(Value x, ArrayRef<int64_t> axes, bool keep) {
  return axes.empty() ? x : keepDims(create<onnx::ReduceSumOp>(x, builder.getDenseI64ArrayAttr(axes)), x, axes, keep);
}
Value CoreBuilder::reduceMax(Value x, ArrayRef<int64_t> axes, bool keep) {
  return axes.empty() ? x : keepDims(create<onnx::ReduceMaxOp>(x, builder.getDenseI64ArrayAttr(axes)), x, axes, keep);
}
Value CoreBuilder::reduceMin(Value x, ArrayRef<int64_t> axes, bool keep) {
  return axes.empty() ? x : keepDims(create<onnx::ReduceMinOp>(x, builder.getDenseI64ArrayAttr(axes)), x, axes, keep);
}
Value CoreBuilder::mean(Value x, ArrayRef<int64_t> axes, bool keep) {
  double count = 1;
  for (int64_t axis : axes) count *= shapeOf(x)[axis];
  if (count == 0 && !isFloatTensor(x)) fail("takes the mean of no integers");
  return div(reduceSum(x, axes, keep), count);
}

Value CoreBuilder::contract(Value lhs, Value rhs, ArrayRef<int64_t> left, ArrayRef<int64_t> right,
                            ArrayRef<int64_t> result) {
  return create<onnx::ContractOp>(lhs, rhs, builder.getDenseI64ArrayAttr(left), builder.getDenseI64ArrayAttr(right),
                                  builder.getDenseI64ArrayAttr(result));
}

} // namespace cleave::normalize
