// What core ops equal in simpler terms, whatever they are for. A folder gives a value that is there already or changes
// the op in place (it keeps its name and its place in the step); a pattern makes other ops.
//
//   folders     Reshape(Reshape(x)) -> Reshape(x)    Transpose to the same order -> x    x + 0, x * 1, x / 1 -> x
//               Concat(x, [8,0]) -> x                And(x, true) -> x                   a sum over no entries -> 0
//   patterns    Slice(Transpose(x)) -> Transpose(Slice(x))       Exp(Broadcast(x)) -> Broadcast(Exp(x))
//               Contract(Transpose(x), y) -> Contract(x, y)      x ^ 2 -> x * x
#include "dialects/onnx/formula.h"
#include "dialects/onnx/kinds.h"
#include "dialects/onnx/result_shape.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Rewrite/FrozenRewritePatternSet.h"

using namespace mlir;
namespace cleave::onnx {
namespace {

using Dims = SmallVector<int64_t>;

ArrayRef<int64_t> shapeOf(Value value) { return tensorType(value).getShape(); }
bool isEmpty(Value value) { return tensorType(value).getNumElements() == 0; }
bool isAll(Attribute operand, double wanted) {
  auto number = splatNumber(operand);
  return number && *number == wanted;
}
// What only moves elements is, of a splat, the splat of another shape.
OpFoldResult resized(Attribute splat, Type type) {
  auto same = dyn_cast_if_present<SplatElementsAttr>(splat);
  return same ? OpFoldResult(same.resizeSplat(cast<ShapedType>(type))) : OpFoldResult();
}

// The dimensions that are not of size 1 are the same, in order: the reshape only adds or drops ones.
bool sameButOnes(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  auto big = [](int64_t size) { return size != 1; };
  return llvm::equal(llvm::make_filter_range(a, big), llvm::make_filter_range(b, big));
}

} // namespace

std::optional<double> splatNumber(Attribute attribute) {
  auto splat = dyn_cast_if_present<SplatElementsAttr>(attribute);
  if (!splat) return std::nullopt;
  if (isa<FloatType>(splat.getElementType())) return splat.getSplatValue<APFloat>().convertToDouble();
  if (!splat.getElementType().isInteger()) return std::nullopt;
  bool isUnsigned = splat.getElementType().isUnsignedInteger() || splat.getElementType().isInteger(1);
  return splat.getSplatValue<APInt>().roundToDouble(!isUnsigned);
}

//===--- folders ----------------------------------------------------------------------------------------------------===//

OpFoldResult ReshapeOp::fold(FoldAdaptor adaptor) {
  if (getX().getType() == getType()) return getX();
  if (auto inner = getX().getDefiningOp<ReshapeOp>()) {
    getXMutable().assign(inner.getX());
    return getY();
  }
  return resized(adaptor.getX(), getType());
}

OpFoldResult TransposeOp::fold(FoldAdaptor adaptor) {
  if (llvm::is_sorted(getPerm())) return getX();
  if (auto inner = getX().getDefiningOp<TransposeOp>()) {
    Dims both;
    for (int64_t d : getPerm()) both.push_back(inner.getPerm()[d]);
    setPerm(both);
    getXMutable().assign(inner.getX());
    return getY();
  }
  return resized(adaptor.getX(), getType());
}

OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  if (getX().getType() == getType()) return getX();
  if (auto inner = getX().getDefiningOp<BroadcastOp>()) {
    Dims dims;
    for (int64_t d : inner.getDims()) dims.push_back(getDims()[d]);
    setDims(dims);
    getXMutable().assign(inner.getX());
    return getY();
  }
  return resized(adaptor.getX(), getType());
}

OpFoldResult SliceOp::fold(FoldAdaptor adaptor) {
  if (getX().getType() == getType()) return getX();
  return resized(adaptor.getX(), getType());
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  if (getXs().size() == 1) return getXs()[0];
  if (isEmpty(getY()) || llvm::none_of(getXs(), isEmpty)) return {};
  for (unsigned i = getXs().size(); i-- > 0;)
    if (isEmpty(getXs()[i])) getXsMutable().erase(i);
  return getY();
}

OpFoldResult PadOp::fold(FoldAdaptor) {
  if (getX().getType() == getType()) return getX();
  return isEmpty(getX()) ? OpFoldResult(splatOf(getType(), getValue().convertToDouble())) : OpFoldResult();
}

static OpFoldResult sumOfNone(Operation *op) {
  Value y = op->getResult(0);
  if (isEmpty(y) || llvm::none_of(op->getOperands(), isEmpty)) return {};
  return splatOf(tensorType(y), 0);
}
OpFoldResult ReduceSumOp::fold(FoldAdaptor) { return sumOfNone(*this); }
OpFoldResult ContractOp::fold(FoldAdaptor) { return sumOfNone(*this); }
OpFoldResult ScatterAddOp::fold(FoldAdaptor) { return sumOfNone(*this); }

OpFoldResult SumOp::fold(FoldAdaptor) { return getXs().size() == 1 ? getXs()[0] : Value(); }
OpFoldResult AddOp::fold(FoldAdaptor adaptor) {
  return isAll(adaptor.getB(), 0) ? getA() : isAll(adaptor.getA(), 0) ? getB() : Value();
}
OpFoldResult SubOp::fold(FoldAdaptor adaptor) { return isAll(adaptor.getB(), 0) ? getA() : Value(); }
OpFoldResult MulOp::fold(FoldAdaptor adaptor) {
  return isAll(adaptor.getB(), 1) ? getA() : isAll(adaptor.getA(), 1) ? getB() : Value();
}
OpFoldResult DivOp::fold(FoldAdaptor adaptor) { return isAll(adaptor.getB(), 1) ? getA() : Value(); }
OpFoldResult PowOp::fold(FoldAdaptor adaptor) { return isAll(adaptor.getB(), 1) ? getA() : Value(); }
OpFoldResult CastOp::fold(FoldAdaptor) { return getX().getType() == getType() ? getX() : Value(); }
OpFoldResult NotOp::fold(FoldAdaptor) {
  auto inner = getX().getDefiningOp<NotOp>();
  return inner ? inner.getX() : Value();
}
OpFoldResult WhereOp::fold(FoldAdaptor adaptor) {
  if (getA() == getB()) return getA();
  auto condition = splatNumber(adaptor.getCondition());
  return !condition ? Value() : *condition != 0 ? getA() : getB();
}

// `neutral` leaves the other operand as it is, its opposite decides.
template <typename Op> static OpFoldResult foldLogic(Op op, Attribute a, Attribute b, bool neutral) {
  if (!op.getType().getElementType().isInteger(1)) return {};
  if (isAll(a, neutral) || isAll(b, !neutral)) return op.getB();
  if (isAll(b, neutral) || isAll(a, !neutral)) return op.getA();
  return {};
}
OpFoldResult AndOp::fold(FoldAdaptor adaptor) { return foldLogic(*this, adaptor.getA(), adaptor.getB(), true); }
OpFoldResult OrOp::fold(FoldAdaptor adaptor) { return foldLogic(*this, adaptor.getA(), adaptor.getB(), false); }

//===--- patterns of one op -----------------------------------------------------------------------------------------===//

LogicalResult ReshapeOp::canonicalize(ReshapeOp op, PatternRewriter &rewriter) {
  Formula f(rewriter, op.getLoc());
  Value x = op.getX();
  ArrayRef<int64_t> from = shapeOf(x), to = shapeOf(op);
  if (!sameButOnes(from, to)) return failure();
  // What is left of dropping ones from a broadcast is a smaller broadcast.
  if (auto inner = x.getDefiningOp<BroadcastOp>()) {
    Dims kept, dims, positions(from.size(), -1); // where each dimension other than 1 of the broadcast goes
    int64_t at = 0;
    for (auto [d, size] : llvm::enumerate(from)) {
      if (size == 1) continue;
      while (to[at] == 1) ++at;
      positions[d] = at++;
    }
    for (auto [size, d] : llvm::zip_equal(shapeOf(inner.getX()), inner.getDims()))
      if (positions[d] >= 0) {
        kept.push_back(size);
        dims.push_back(positions[d]);
      }
    rewriter.replaceOp(op, f.make<BroadcastOp>(f.make<ReshapeOp>(inner.getX(), kept), to, dims));
    return success();
  }
  // Ones are moved in front of a transpose, which may then meet a contraction.
  auto inner = x.getDefiningOp<TransposeOp>();
  if (!inner) return failure();
  Dims order; // dimensions of the transpose's operand that are not 1, in the transposed order
  for (int64_t d : inner.getPerm())
    if (shapeOf(inner.getX())[d] != 1) order.push_back(d);
  Dims sorted(order);
  llvm::sort(sorted);
  const int64_t ones = to.size() - order.size(); // those of the result go to the front of the operand
  Dims shape(ones, 1), perm(to.size());
  for (int64_t d : sorted) shape.push_back(shapeOf(inner.getX())[d]);
  int64_t nextOne = 0, nextBig = 0;
  for (auto [d, size] : llvm::enumerate(to))
    perm[d] = size == 1 ? nextOne++ : ones + (llvm::find(sorted, order[nextBig++]) - sorted.begin());
  if (order == sorted)
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, inner.getX(), to);
  else
    rewriter.replaceOp(op, f.make<TransposeOp>(f.make<ReshapeOp>(inner.getX(), shape), perm));
  return success();
}

LogicalResult TransposeOp::canonicalize(TransposeOp op, PatternRewriter &rewriter) {
  if (!keepsOrder(shapeOf(op.getX()), op.getPerm())) return failure();
  rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getX(), shapeOf(op));
  return success();
}

LogicalResult BroadcastOp::canonicalize(BroadcastOp op, PatternRewriter &rewriter) {
  Value x = op.getX();
  if (tensorType(x).getNumElements() == op.getType().getNumElements()) {
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, x, shapeOf(op));
    return success();
  }
  // Ones of the operand that stay ones need no reshape in front: they come from the broadcast itself.
  auto inner = x.getDefiningOp<ReshapeOp>();
  if (!inner || !llvm::is_contained(shapeOf(x), 1) || !sameButOnes(shapeOf(inner.getX()), shapeOf(x))) return failure();
  Dims kept, dims;
  for (auto [size, d] : llvm::zip_equal(shapeOf(x), op.getDims()))
    if (size != 1) {
      kept.push_back(size);
      dims.push_back(d);
    }
  Value squeezed = ReshapeOp::create(rewriter, op.getLoc(), inner.getX(), kept);
  rewriter.replaceOpWithNewOp<BroadcastOp>(op, squeezed, shapeOf(op), dims);
  return success();
}

// The slice of a Transpose or Broadcast is that of a slice of its operand.
LogicalResult SliceOp::canonicalize(SliceOp op, PatternRewriter &rewriter) {
  auto view = op.getX().getDefiningOp<StridedViewOpInterface>();
  if (!view || isa<SliceOp>(view)) return failure();
  Dims starts, sizes, steps;
  for (int64_t d : view.getStridedMap().dims) {
    starts.push_back(op.getStarts()[d]);
    sizes.push_back(op.getSizes()[d]);
    steps.push_back(op.getSteps()[d]);
  }
  Value sliced = SliceOp::create(rewriter, op.getLoc(), view->getOperand(0), starts, sizes, steps);
  Operation *same = view->clone();
  same->setLoc(op.getLoc());
  same->setDiscardableAttrs(ArrayRef<NamedAttribute>());
  same->setOperands(sliced);
  setResultShape(same, op.getSizes());
  same->getResult(0).setType(op.getType());
  rewriter.replaceOp(op, rewriter.insert(same)->getResults());
  return success();
}

// All operands are transposed in one way: one transpose of the result does.
LogicalResult ConcatOp::canonicalize(ConcatOp op, PatternRewriter &rewriter) {
  SmallVector<Value> sources;
  ArrayRef<int64_t> perm;
  for (Value x : op.getXs()) {
    auto transpose = x.getDefiningOp<TransposeOp>();
    if (!transpose || (!perm.empty() && transpose.getPerm() != perm)) return failure();
    perm = transpose.getPerm();
    sources.push_back(transpose.getX());
  }
  Value joined = ConcatOp::create(rewriter, op.getLoc(), sources, perm[op.getAxis()]);
  rewriter.replaceOpWithNewOp<TransposeOp>(op, joined, perm);
  return success();
}

// A reduction of a transpose reduces the operand's own dimensions.
template <typename Reduce> static LogicalResult reduceBefore(Reduce op, PatternRewriter &rewriter) {
  auto transpose = op.getX().template getDefiningOp<TransposeOp>();
  if (!transpose) return failure();
  Dims axes, kept, perm;
  for (auto [to, from] : llvm::enumerate(transpose.getPerm()))
    (llvm::is_contained(op.getAxes(), int64_t(to)) ? axes : kept).push_back(from);
  llvm::sort(axes);
  Dims sorted(kept);
  llvm::sort(sorted);
  for (int64_t d : kept) perm.push_back(llvm::find(sorted, d) - sorted.begin());
  Value reduced = Reduce::create(rewriter, op.getLoc(), transpose.getX(), axes);
  rewriter.replaceOpWithNewOp<TransposeOp>(op, reduced, perm);
  return success();
}
LogicalResult ReduceSumOp::canonicalize(ReduceSumOp op, PatternRewriter &rewriter) {
  return reduceBefore(op, rewriter);
}
LogicalResult ReduceMaxOp::canonicalize(ReduceMaxOp op, PatternRewriter &rewriter) {
  return reduceBefore(op, rewriter);
}
LogicalResult ReduceMinOp::canonicalize(ReduceMinOp op, PatternRewriter &rewriter) {
  return reduceBefore(op, rewriter);
}

LogicalResult PowOp::canonicalize(PowOp op, PatternRewriter &rewriter) {
  auto constant = op.getB().getDefiningOp<ConstantOp>();
  auto exponent = constant ? splatNumber(constant.getValue()) : std::nullopt;
  if (!exponent) return failure();
  Formula f(rewriter, op.getLoc());
  Value x = op.getA(), y;
  if (*exponent == 2) y = f.mul(x, x);
  if (*exponent == 3) y = f.mul(f.mul(x, x), x);
  if (isFloatTensor(x) && *exponent == 0.5) y = f.make<SqrtOp>(x);
  if (isFloatTensor(x) && *exponent == -0.5) y = f.make<RsqrtOp>(x);
  if (isFloatTensor(x) && *exponent == -1) y = f.make<ReciprocalOp>(x);
  if (!y) return failure();
  rewriter.replaceOp(op, y);
  return success();
}

// A transposed operand is read where it lies: its indices in another order.
template <typename Product> static LogicalResult absorbTransposes(Product op, PatternRewriter &rewriter) {
  bool isChanged = false;
  auto absorb = [&](OpOperand &operand, ArrayRef<int64_t> indices, auto set) {
    auto transpose = operand.get().getDefiningOp<TransposeOp>();
    if (!transpose) return;
    Dims before(indices.size());
    for (auto [to, from] : llvm::enumerate(transpose.getPerm())) before[from] = indices[to];
    rewriter.modifyOpInPlace(op, [&] {
      set(before);
      operand.set(transpose.getX());
    });
    isChanged = true;
  };
  absorb(op.getLhsMutable(), op.getLhsIndices(), [&](const Dims &to) { op.setLhsIndices(to); });
  absorb(op.getRhsMutable(), op.getRhsIndices(), [&](const Dims &to) { op.setRhsIndices(to); });
  return success(isChanged);
}
LogicalResult ContractOp::canonicalize(ContractOp op, PatternRewriter &rewriter) {
  return absorbTransposes(op, rewriter);
}
LogicalResult GroupedContractOp::canonicalize(GroupedContractOp op, PatternRewriter &rewriter) {
  return absorbTransposes(op, rewriter);
}

//===--- patterns of many ops ---------------------------------------------------------------------------------------===//

namespace {

// The pointwise op `op` of other operands, of another shape.
Value likeWith(Operation *op, ValueRange operands, ArrayRef<int64_t> shape, PatternRewriter &rewriter) {
  Operation *copy = op->clone();
  copy->setOperands(operands);
  copy->getResult(0).setType(tensorType(op->getResult(0)).clone(shape));
  return rewriter.insert(copy)->getResult(0);
}
Value splatLike(Value splat, ArrayRef<int64_t> shape, PatternRewriter &rewriter) {
  auto value = cast<SplatElementsAttr>(splat.getDefiningOp<ConstantOp>().getValue());
  return ConstantOp::create(rewriter, splat.getLoc(), value.resizeSplat(tensorType(splat).clone(shape)));
}

// f(broadcast(x), broadcast(y)) where both repeat along a dimension: f is computed once and then broadcast.
Value sinkBroadcasts(Operation *op, PatternRewriter &rewriter) {
  Formula f(rewriter, op->getLoc());
  ArrayRef<int64_t> shape = shapeOf(op->getResult(0));
  SmallVector<bool> used(shape.size(), false);
  bool any = false;
  for (Value operand : op->getOperands()) {
    if (isSplat(operand)) continue;
    auto broadcast = operand.getDefiningOp<BroadcastOp>();
    if (!broadcast) return {};
    any = true;
    for (int64_t d : broadcast.getDims()) used[d] = true;
  }
  if (!any || llvm::all_of(used, [](bool u) { return u; })) return {};
  Dims dims, small, position(shape.size(), -1);
  for (auto [d, size] : llvm::enumerate(shape))
    if (used[d]) {
      position[d] = int64_t(dims.size());
      dims.push_back(int64_t(d));
      small.push_back(size);
    }
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    auto broadcast = operand.getDefiningOp<BroadcastOp>();
    if (!broadcast) {
      operands.push_back(splatLike(operand, small, rewriter));
      continue;
    }
    Dims to;
    for (int64_t d : broadcast.getDims()) to.push_back(position[d]);
    operands.push_back(f.make<BroadcastOp>(broadcast.getX(), small, to));
  }
  return f.make<BroadcastOp>(likeWith(op, operands, small, rewriter), shape, dims);
}

// f(reshape(x), splat) where the reshape only adds or drops ones: the reshape comes after.
Value sinkOnes(Operation *op, PatternRewriter &rewriter) {
  ArrayRef<int64_t> from;
  bool any = false;
  for (Value operand : op->getOperands()) {
    if (isSplat(operand)) continue;
    auto reshape = operand.getDefiningOp<ReshapeOp>();
    if (!reshape || !sameButOnes(shapeOf(reshape.getX()), shapeOf(reshape))) return {};
    if (any && shapeOf(reshape.getX()) != from) return {};
    from = shapeOf(reshape.getX());
    any = true;
  }
  if (!any) return {};
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(isSplat(operand) ? splatLike(operand, from, rewriter)
                                        : operand.getDefiningOp<ReshapeOp>().getX());
  return ReshapeOp::create(rewriter, op->getLoc(), likeWith(op, operands, from, rewriter), shapeOf(op->getResult(0)));
}

// f(transpose(x), broadcast(y)): the transpose comes after, where a product may read it away.
Value sinkTransposes(Operation *op, PatternRewriter &rewriter) {
  Formula f(rewriter, op->getLoc());
  ArrayRef<int64_t> perm;
  for (Value operand : op->getOperands()) {
    if (auto transpose = operand.getDefiningOp<TransposeOp>()) {
      if (!perm.empty() && perm != transpose.getPerm()) return {};
      perm = transpose.getPerm();
    } else if (!isSplat(operand) && !operand.getDefiningOp<BroadcastOp>()) {
      return {};
    }
  }
  if (perm.empty()) return {};
  ArrayRef<int64_t> shape = shapeOf(op->getResult(0));
  Dims source(perm.size());
  for (auto [to, from] : llvm::enumerate(perm)) source[from] = shape[to];
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    if (auto transpose = operand.getDefiningOp<TransposeOp>()) {
      operands.push_back(transpose.getX());
    } else if (isSplat(operand)) {
      operands.push_back(splatLike(operand, source, rewriter));
    } else { // the broadcast's dimensions go to where the source has them; its operand's order may change
      auto broadcast = operand.getDefiningOp<BroadcastOp>();
      Dims dims, order = llvm::to_vector(llvm::seq<int64_t>(0, broadcast.getDims().size()));
      for (int64_t d : broadcast.getDims()) dims.push_back(perm[d]);
      llvm::sort(order, [&](int64_t i, int64_t j) { return dims[i] < dims[j]; });
      llvm::sort(dims);
      operands.push_back(f.make<BroadcastOp>(f.make<TransposeOp>(broadcast.getX(), order), source, dims));
    }
  }
  return f.make<TransposeOp>(likeWith(op, operands, source, rewriter), perm);
}

// What moves the elements of all operands alike comes after the arithmetic, which may then be less. Marked ops
// (compiler/normalize/normalize.h) stay what they are.
struct SinkMovement : OpTraitRewritePattern<PerElement> {
  using OpTraitRewritePattern::OpTraitRewritePattern;
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isPointwise(op) || !op->getDiscardableAttrs().empty()) return failure();
    Value y = sinkBroadcasts(op, rewriter);
    if (!y) y = sinkOnes(op, rewriter);
    if (!y) y = sinkTransposes(op, rewriter);
    if (!y) return failure();
    rewriter.replaceOp(op, y);
    return success();
  }
};

} // namespace

void OnnxDialect::getCanonicalizationPatterns(RewritePatternSet &patterns) const {
  patterns.add<SinkMovement>(getContext());
}

const FrozenRewritePatternSet &OnnxDialect::getPatterns() {
  std::call_once(arePatternsMade, [&] {
    RewritePatternSet all(getContext());
    for (RegisteredOperationName name : getContext()->getRegisteredOperations())
      if (&name.getDialect() == this) name.getCanonicalizationPatterns(all, getContext());
    getCanonicalizationPatterns(all);
    patterns = std::make_shared<const FrozenRewritePatternSet>(std::move(all));
  });
  return *patterns;
}

Operation *OnnxDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type, Location loc) {
  return ConstantOp::create(builder, loc, type, cast<ElementsAttr>(value));
}

} // namespace cleave::onnx
