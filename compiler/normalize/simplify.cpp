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

Value simplifyConcat(onnx::ConcatOp op) { return op.getXs().size() == 1 ? op.getXs()[0] : Value(); }

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

} // namespace

Value simplify(Operation *op, CoreBuilder &b) {
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case([&](onnx::ReshapeOp op) { return simplifyReshape(op, b); })
      .Case([&](onnx::TransposeOp op) { return simplifyTranspose(op, b); })
      .Case([&](onnx::BroadcastOp op) { return simplifyBroadcast(op, b); })
      .Case([&](onnx::SliceOp op) { return simplifySlice(op, b); })
      .Case([&](onnx::ConcatOp op) { return simplifyConcat(op); })
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

} // namespace cleave::normalize
