#include "dialects/onnx/kinds.h"

using namespace mlir;
namespace cleave::onnx {

using dist::Form;

static std::optional<dist::OperationKind> kindOf(Operation *op) {
  auto cost = dyn_cast<CostOpInterface>(op);
  return cost ? std::optional(cost.getKind()) : std::nullopt;
}
bool is(Operation *op, LoweringKind kind) {
  auto lowering = dyn_cast<LoweringOpInterface>(op);
  return lowering && lowering.getLoweringKind() == kind;
}

bool isHeavy(Operation *op) {
  auto kind = kindOf(op);
  return kind && kind->isHeavy();
}
bool isView(Operation *op) {
  auto kind = kindOf(op);
  return isa<StridedViewOpInterface>(op) || (kind && (kind->form == Form::Reshape || kind->form == Form::Identity));
}
bool isAlias(Operation *op) { return is(op, LoweringKind::View); }
bool isMovement(Operation *op) {
  if (auto pad = dyn_cast<PadOp>(op)) return pad.getValue().isZero();
  return is(op, LoweringKind::Movement) || isAlias(op) || isa<StridedViewOpInterface>(op);
}
bool isRearrangement(Operation *op) { return isAlias(op) || isa<TransposeOp>(op); }
bool isPointwise(Operation *op) { return op->hasTrait<PerElement>() && op->getNumOperands() > 0 && !isGenerator(op); }
bool isSum(Operation *op) {
  auto kind = kindOf(op);
  return kind && kind->form == Form::Accumulation;
}
bool isReduction(Operation *op) {
  auto kind = kindOf(op);
  return kind && kind->work == dist::ElementWork::Reduction && is(op, LoweringKind::Fused);
}
bool isConstant(Operation *op) { return is(op, LoweringKind::Constant); }
bool isSplat(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  return constant && isa<SplatElementsAttr>(constant.getValue());
}
std::optional<double> repeatedNumber(Value value, bool throughCasts) {
  for (Operation *op; (op = value.getDefiningOp()) && (isView(op) || (throughCasts && isa<CastOp>(op)));)
    value = op->getOperand(0);
  auto constant = value.getDefiningOp<ConstantOp>();
  return constant ? splatNumber(constant.getValue()) : std::nullopt;
}
bool isGenerator(Operation *op) {
  auto kind = kindOf(op);
  return isConstant(op) || (kind && (kind->form == Form::Iota || kind->work == dist::ElementWork::Random));
}
bool isResident(Operation *op) { return isa<ReadOp>(op) || isConstant(op); }
bool isWideningCast(Operation *op) { return isa<CastOp>(op) && bytesOf(op->getOperand(0)) < bytesOf(op->getResult(0)); }

bool keepsOrder(ArrayRef<int64_t> shape, ArrayRef<int64_t> perm) {
  auto moved = llvm::filter_to_vector(perm, [&](int64_t dim) { return shape[size_t(dim)] != 1; });
  return llvm::is_sorted(moved);
}

int64_t elementBytes(Type element) { return (element.getIntOrFloatBitWidth() + 7) / 8; }
int64_t bytesOf(Type tensor) {
  auto type = cast<RankedTensorType>(tensor);
  return type.getNumElements() * elementBytes(type.getElementType());
}

} // namespace cleave::onnx
