#include "compiler/normalize/simplify.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

bool isSplat(Value value, double wanted) {
  auto splat = splatOf(value);
  return splat && *splat == wanted;
}

// The dimensions that are not of size 1 are the same, in order: the reshape only adds or drops ones.
bool sameButOnes(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  auto big = [](int64_t size) { return size != 1; };
  return llvm::equal(llvm::make_filter_range(a, big), llvm::make_filter_range(b, big));
}

Value simplifyReshape(onnx::ReshapeOp op, CoreBuilder &b) {
  Value x = op.getX();
  if (shapeOf(x) == op.getShape()) return x;
  if (auto inner = x.getDefiningOp<onnx::ReshapeOp>()) return b.reshape(inner.getX(), op.getShape());
  // Broadcast that only adds ones is a reshape already (below), so what is left of dropping ones from a broadcast is
  // a smaller broadcast.
  if (auto inner = x.getDefiningOp<onnx::BroadcastOp>(); inner && sameButOnes(shapeOf(x), op.getShape())) {
    Dims source(shapeOf(inner.getX())), keptSource, dims;
    Dims positions(shapeOf(x).size(), -1); // where each dimension other than 1 of the broadcast goes
    int64_t at = 0;
    for (auto [d, size] : llvm::enumerate(shapeOf(x))) {
      if (size == 1) continue;
      while (op.getShape()[at] == 1) ++at;
      positions[d] = at++;
    }
    for (auto [i, d] : llvm::enumerate(inner.getDims()))
      if (positions[d] >= 0) {
        keptSource.push_back(source[i]);
        dims.push_back(positions[d]);
      }
    return b.create<onnx::BroadcastOp>(b.reshape(inner.getX(), keptSource), op.getShapeAttr(),
                                       b.builder.getDenseI64ArrayAttr(dims));
  }
  // Ones are moved in front of a transpose, which may then meet a contraction.
  if (auto inner = x.getDefiningOp<onnx::TransposeOp>(); inner && sameButOnes(shapeOf(x), op.getShape())) {
    Dims order; // dimensions of the transpose's operand that are not 1, in the transposed order
    for (int64_t d : inner.getPerm())
      if (shapeOf(inner.getX())[d] != 1) order.push_back(d);
    Dims sorted(order);
    llvm::sort(sorted);
    Dims squeezed, perm;
    for (int64_t d : sorted) squeezed.push_back(shapeOf(inner.getX())[d]);
    for (int64_t d : order) perm.push_back(llvm::find(sorted, d) - sorted.begin());
    // ones of the result go to the front of the operand
    Dims shape, whole(op.getShape().size());
    int64_t ones = op.getShape().size() - order.size(), nextOne = 0, nextBig = 0;
    shape.append(ones, 1);
    shape.append(squeezed);
    for (auto [d, size] : llvm::enumerate(op.getShape())) whole[d] = size == 1 ? nextOne++ : ones + perm[nextBig++];
    if (llvm::is_sorted(perm)) return b.reshape(inner.getX(), op.getShape());
    return b.transpose(b.reshape(inner.getX(), shape), whole);
  }
  return {};
}

Value simplifyTranspose(onnx::TransposeOp op, CoreBuilder &b) {
  Value x = op.getX();
  ArrayRef<int64_t> perm = op.getPerm();
  if (llvm::equal(perm, countUp(perm.size()))) return x;
  if (auto inner = x.getDefiningOp<onnx::TransposeOp>()) {
    Dims both;
    for (int64_t d : perm) both.push_back(inner.getPerm()[d]);
    return b.transpose(inner.getX(), both);
  }
  Dims big; // moving ones about is a reshape
  for (int64_t d : perm)
    if (shapeOf(x)[d] != 1) big.push_back(d);
  if (llvm::is_sorted(big)) return b.reshape(x, shapeOf(op));
  return {};
}

Value simplifyBroadcast(onnx::BroadcastOp op, CoreBuilder &b) {
  Value x = op.getX();
  if (shapeOf(x) == op.getShape()) return x;
  if (typeOf(x).getNumElements() == typeOf(op).getNumElements()) return b.reshape(x, op.getShape());
  if (auto inner = x.getDefiningOp<onnx::BroadcastOp>()) {
    Dims dims;
    for (int64_t d : inner.getDims()) dims.push_back(op.getDims()[d]);
    return b.create<onnx::BroadcastOp>(inner.getX(), op.getShapeAttr(), b.builder.getDenseI64ArrayAttr(dims));
  }
  // Ones of the operand that stay ones need no reshape in front: they come from the broadcast itself.
  if (auto inner = x.getDefiningOp<onnx::ReshapeOp>(); inner && sameButOnes(shapeOf(inner.getX()), shapeOf(x))) {
    Dims kept, dims;
    for (auto [i, d] : llvm::enumerate(op.getDims()))
      if (shapeOf(x)[i] != 1) {
        kept.push_back(shapeOf(x)[i]);
        dims.push_back(d);
      }
    if (kept.size() == size_t(rankOf(x))) return {};
    return b.create<onnx::BroadcastOp>(b.reshape(inner.getX(), kept), op.getShapeAttr(),
                                       b.builder.getDenseI64ArrayAttr(dims));
  }
  return {};
}

Value simplifySlice(onnx::SliceOp op, CoreBuilder &b) {
  Value x = op.getX();
  if (shapeOf(x) == op.getSizes()) return x;
  if (auto inner = x.getDefiningOp<onnx::TransposeOp>()) {
    size_t rank = op.getSizes().size();
    Dims starts(rank), sizes(rank), steps(rank);
    for (auto [to, from] : llvm::enumerate(inner.getPerm())) {
      starts[from] = op.getStarts()[to];
      sizes[from] = op.getSizes()[to];
      steps[from] = op.getSteps()[to];
    }
    Value sliced =
        b.create<onnx::SliceOp>(inner.getX(), b.builder.getDenseI64ArrayAttr(starts),
                                b.builder.getDenseI64ArrayAttr(sizes), b.builder.getDenseI64ArrayAttr(steps));
    return b.transpose(sliced, inner.getPerm());
  }
  if (auto inner = x.getDefiningOp<onnx::BroadcastOp>()) {
    Dims starts, sizes, steps;
    for (int64_t d : inner.getDims()) {
      starts.push_back(op.getStarts()[d]);
      sizes.push_back(op.getSizes()[d]);
      steps.push_back(op.getSteps()[d]);
    }
    Value sliced =
        b.create<onnx::SliceOp>(inner.getX(), b.builder.getDenseI64ArrayAttr(starts),
                                b.builder.getDenseI64ArrayAttr(sizes), b.builder.getDenseI64ArrayAttr(steps));
    return b.create<onnx::BroadcastOp>(sliced, op.getSizesAttr(), inner.getDimsAttr());
  }
  return {};
}

// All operands are transposed in one way: one transpose of the result does.
Value simplifyConcat(onnx::ConcatOp op, CoreBuilder &b) {
  if (op.getXs().size() == 1) return op.getXs()[0];
  auto first = op.getXs()[0].getDefiningOp<onnx::TransposeOp>();
  if (!first) return {};
  Values sources;
  for (Value x : op.getXs()) {
    auto transpose = x.getDefiningOp<onnx::TransposeOp>();
    if (!transpose || transpose.getPerm() != first.getPerm()) return {};
    sources.push_back(transpose.getX());
  }
  return b.transpose(b.concat(sources, first.getPerm()[op.getAxis()]), first.getPerm());
}

// A reduction of a transpose reduces the operand's own dimensions.
template <typename Reduce> Value simplifyReduce(Reduce op, CoreBuilder &b) {
  auto transpose = op.getX().template getDefiningOp<onnx::TransposeOp>();
  if (!transpose) return {};
  Dims axes, kept, perm;
  for (auto [to, from] : llvm::enumerate(transpose.getPerm()))
    (llvm::is_contained(op.getAxes(), int64_t(to)) ? axes : kept).push_back(from);
  llvm::sort(axes);
  Dims sorted(kept);
  llvm::sort(sorted);
  for (int64_t d : kept) perm.push_back(llvm::find(sorted, d) - sorted.begin());
  Value reduced = b.create<Reduce>(transpose.getX(), b.builder.getDenseI64ArrayAttr(axes));
  return b.transpose(reduced, perm);
}

// The elementwise op `op` of other operands, of another shape.
Value likeWith(Operation *op, ValueRange operands, ArrayRef<int64_t> shape, CoreBuilder &b) {
  Operation *copy = b.builder.clone(*op);
  copy->setOperands(operands);
  copy->getResult(0).setType(typeOf(op->getResult(0)).clone(shape));
  Value better = simplify(copy, b);
  if (!better)
    if (DenseElementsAttr folded = foldOp(copy, b.foldLimit)) better = b.compactConstant(folded);
  if (!better) return copy->getResult(0);
  copy->erase();
  return better;
}
Value splatLike(Value splat, ArrayRef<int64_t> shape, CoreBuilder &b) {
  return b.constant(constantOf(splat).resizeSplat(typeOf(splat).clone(shape)));
}
bool isSplatConstant(Value value) {
  DenseElementsAttr attribute = constantOf(value);
  return attribute && attribute.isSplat();
}

// f(broadcast(x), broadcast(y)) where both repeat along a dimension: f is computed once and then broadcast.
Value sinkBroadcasts(Operation *op, CoreBuilder &b) {
  ArrayRef<int64_t> shape = shapeOf(op->getResult(0));
  SmallVector<bool> used(shape.size(), false);
  bool any = false;
  for (Value operand : op->getOperands()) {
    if (isSplatConstant(operand)) continue;
    auto broadcast = operand.getDefiningOp<onnx::BroadcastOp>();
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
  Values operands;
  for (Value operand : op->getOperands()) {
    auto broadcast = operand.getDefiningOp<onnx::BroadcastOp>();
    if (!broadcast) {
      operands.push_back(splatLike(operand, small, b));
      continue;
    }
    Dims to;
    for (int64_t d : broadcast.getDims()) to.push_back(position[d]);
    operands.push_back(b.create<onnx::BroadcastOp>(broadcast.getX(), b.builder.getDenseI64ArrayAttr(small),
                                                   b.builder.getDenseI64ArrayAttr(to)));
  }
  Value result = likeWith(op, operands, small, b);
  return b.create<onnx::BroadcastOp>(result, b.builder.getDenseI64ArrayAttr(shape),
                                     b.builder.getDenseI64ArrayAttr(dims));
}

// f(reshape(x), splat) where the reshape only adds or drops ones: the reshape comes after.
Value sinkOnes(Operation *op, CoreBuilder &b) {
  ArrayRef<int64_t> from;
  bool any = false;
  for (Value operand : op->getOperands()) {
    if (isSplatConstant(operand)) continue;
    auto reshape = operand.getDefiningOp<onnx::ReshapeOp>();
    if (!reshape || !sameButOnes(shapeOf(reshape.getX()), reshape.getShape())) return {};
    if (any && shapeOf(reshape.getX()) != from) return {};
    from = shapeOf(reshape.getX());
    any = true;
  }
  if (!any) return {};
  Values operands;
  for (Value operand : op->getOperands())
    operands.push_back(isSplatConstant(operand) ? splatLike(operand, from, b)
                                                : operand.getDefiningOp<onnx::ReshapeOp>().getX());
  return b.reshape(likeWith(op, operands, from, b), shapeOf(op->getResult(0)));
}

// f(transpose(x), broadcast(y)): the transpose comes after, where a product may read it away.
Value sinkTransposes(Operation *op, CoreBuilder &b) {
  ArrayRef<int64_t> perm;
  for (Value operand : op->getOperands()) {
    auto transpose = operand.getDefiningOp<onnx::TransposeOp>();
    if (transpose) {
      if (!perm.empty() && perm != transpose.getPerm()) return {};
      perm = transpose.getPerm();
    } else if (!isSplatConstant(operand) && !operand.getDefiningOp<onnx::BroadcastOp>()) {
      return {};
    }
  }
  if (perm.empty()) return {};
  ArrayRef<int64_t> shape = shapeOf(op->getResult(0));
  Dims source(perm.size());
  for (auto [to, from] : llvm::enumerate(perm)) source[from] = shape[to];
  Values operands;
  for (Value operand : op->getOperands()) {
    if (auto transpose = operand.getDefiningOp<onnx::TransposeOp>()) {
      operands.push_back(transpose.getX());
    } else if (isSplatConstant(operand)) {
      operands.push_back(splatLike(operand, source, b));
    } else { // the broadcast's dimensions go to where the source has them; its operand's order may change
      auto broadcast = operand.getDefiningOp<onnx::BroadcastOp>();
      Dims dims;
      for (int64_t d : broadcast.getDims()) dims.push_back(perm[d]);
      Dims order = countUp(int64_t(dims.size()));
      llvm::sort(order, [&](int64_t i, int64_t j) { return dims[i] < dims[j]; });
      llvm::sort(dims);
      operands.push_back(b.create<onnx::BroadcastOp>(b.transpose(broadcast.getX(), order),
                                                     b.builder.getDenseI64ArrayAttr(source),
                                                     b.builder.getDenseI64ArrayAttr(dims)));
    }
  }
  Dims order(perm);
  return b.transpose(likeWith(op, operands, source, b), order);
}

Value sinkMovement(Operation *op, CoreBuilder &b) {
  if (!op->hasTrait<onnx::PerElement>() || op->getNumOperands() == 0 || isa<onnx::RandomUniformOp>(op)) return {};
  if (!op->getDiscardableAttrs().empty()) return {}; // marked ops (normalize.h) stay what they are
  if (Value y = sinkBroadcasts(op, b)) return y;
  if (Value y = sinkOnes(op, b)) return y;
  return sinkTransposes(op, b);
}

Value simplifyPow(onnx::PowOp op, CoreBuilder &b) {
  auto exponent = splatOf(op.getB());
  if (!exponent) return {};
  Value x = op.getA();
  if (*exponent == 1) return x;
  if (*exponent == 2) return b.mul(x, x);
  if (*exponent == 3) return b.mul(b.mul(x, x), x);
  if (!isFloatTensor(x)) return {};
  if (*exponent == 0.5) return b.unary<onnx::SqrtOp>(x);
  if (*exponent == -0.5) return b.unary<onnx::RsqrtOp>(x);
  if (*exponent == -1) return b.unary<onnx::ReciprocalOp>(x);
  return {};
}

Value simplifyAnd(onnx::AndOp op) {
  if (!elementOf(op).isInteger(1)) return {};
  for (auto [one, other] : {std::pair(op.getA(), op.getB()), std::pair(op.getB(), op.getA())}) {
    if (isSplat(one, 1)) return other;
    if (isSplat(one, 0)) return one;
  }
  return {};
}
Value simplifyOr(onnx::OrOp op) {
  if (!elementOf(op).isInteger(1)) return {};
  for (auto [one, other] : {std::pair(op.getA(), op.getB()), std::pair(op.getB(), op.getA())}) {
    if (isSplat(one, 0)) return other;
    if (isSplat(one, 1)) return one;
  }
  return {};
}
Value simplifyWhere(onnx::WhereOp op) {
  if (op.getA() == op.getB()) return op.getA();
  auto condition = splatOf(op.getCondition());
  return !condition ? Value() : *condition != 0 ? op.getA() : op.getB();
}
Value simplifyNot(onnx::NotOp op) {
  auto inner = op.getX().getDefiningOp<onnx::NotOp>();
  return inner ? inner.getX() : Value();
}

// An operand without entries adds nothing to a concatenation, and a sum over none is 0.
Value simplifyEmpty(Operation *op, CoreBuilder &b) {
  auto isEmpty = [](Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && type.hasStaticShape() && type.getNumElements() == 0;
  };
  if (op->getNumResults() != 1 || isEmpty(op->getResult(0)) || llvm::none_of(op->getOperands(), isEmpty)) return {};
  if (auto concat = dyn_cast<onnx::ConcatOp>(op)) {
    SmallVector<Value> parts = llvm::filter_to_vector(concat.getXs(), [&](Value part) { return !isEmpty(part); });
    return parts.size() == 1 ? parts[0] : b.concat(parts, static_cast<int64_t>(concat.getAxis()));
  }
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  if (auto pad = dyn_cast<onnx::PadOp>(op)) return b.splat(type, pad.getValue().convertToDouble());
  if (isa<onnx::ReduceSumOp, onnx::ContractOp, onnx::ScatterAddOp>(op)) return b.splat(type, 0);
  return {};
}

} // namespace

static Value identity(Operation *op, CoreBuilder &b) {
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case([&](onnx::ReshapeOp op) { return simplifyReshape(op, b); })
      .Case([&](onnx::TransposeOp op) { return simplifyTranspose(op, b); })
      .Case([&](onnx::BroadcastOp op) { return simplifyBroadcast(op, b); })
      .Case([&](onnx::SliceOp op) { return simplifySlice(op, b); })
      .Case([&](onnx::ConcatOp op) { return simplifyConcat(op, b); })
      .Case([&](onnx::ReduceSumOp op) { return simplifyReduce(op, b); })
      .Case([&](onnx::ReduceMaxOp op) { return simplifyReduce(op, b); })
      .Case([&](onnx::ReduceMinOp op) { return simplifyReduce(op, b); })
      .Case([&](onnx::SumOp op) { return op.getXs().size() == 1 ? op.getXs()[0] : Value(); })
      .Case([&](onnx::AddOp op) {
        return isSplat(op.getB(), 0) ? op.getA() : isSplat(op.getA(), 0) ? op.getB() : Value();
      })
      .Case([&](onnx::SubOp op) { return isSplat(op.getB(), 0) ? op.getA() : Value(); })
      .Case([&](onnx::MulOp op) {
        return isSplat(op.getB(), 1) ? op.getA() : isSplat(op.getA(), 1) ? op.getB() : Value();
      })
      .Case([&](onnx::DivOp op) { return isSplat(op.getB(), 1) ? op.getA() : Value(); })
      .Case([&](onnx::PowOp op) { return simplifyPow(op, b); })
      .Case([&](onnx::AndOp op) { return simplifyAnd(op); })
      .Case([&](onnx::OrOp op) { return simplifyOr(op); })
      .Case([&](onnx::NotOp op) { return simplifyNot(op); })
      .Case([&](onnx::WhereOp op) { return simplifyWhere(op); })
      .Case([&](onnx::CastOp op) { return elementOf(op.getX()) == op.getTo() ? op.getX() : Value(); })
      .Default([](Operation *) { return Value(); });
}

Value simplify(Operation *op, CoreBuilder &b) {
  Value simple = simplifyEmpty(op, b);
  if (!simple) simple = identity(op, b);
  return simple ? simple : sinkMovement(op, b);
}

} // namespace cleave::normalize
