#include "compiler/partition/mirrored_split.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
namespace {

ArrayRef<int64_t> lettersOf(onnx::ContractOp op, size_t operand) {
  return operand == 0 ? op.getLhsIndices() : op.getRhsIndices();
}

// Is `gradient` the derivative of `forward` by its operand `other`, with `shared` as its other operand on both sides?
bool differentiates(onnx::ContractOp gradient, size_t own, onnx::ContractOp forward, size_t shared) {
  return lettersOf(gradient, own) == lettersOf(forward, shared) &&
         lettersOf(gradient, 1 - own) == forward.getResultIndices() &&
         gradient.getResultIndices() == lettersOf(forward, 1 - shared);
}

// The use of the operand that both have by the forward product; null for none.
OpOperand *sharedUse(onnx::ContractOp gradient) {
  for (size_t own : {0, 1})
    for (OpOperand &use : gradient->getOperand(own).getUses()) {
      auto forward = dyn_cast<onnx::ContractOp>(use.getOwner());
      if (forward && phaseOf(forward) == Phase::Forward && forward.getLoc() == gradient.getLoc() &&
          differentiates(gradient, own, forward, use.getOperandNumber()))
        return &use;
    }
  return nullptr;
}

OpOperand *sharedWith(onnx::ContractOp gradient, onnx::ContractOp forward) {
  for (size_t own : {0, 1})
    for (OpOperand &operand : forward->getOpOperands())
      if (differentiates(gradient, own, forward, operand.getOperandNumber())) return &operand;
  return nullptr;
}

onnx::ContractOp gradientProduct(Operation *op) {
  return phaseOf(op) == Phase::Backward ? dyn_cast<onnx::ContractOp>(op) : onnx::ContractOp();
}

} // namespace

void numberProducts(func::FuncOp function) {
  int64_t count = 0; // behind the numbers that there are
  for (Operation &op : function.getBody().front()) count = std::max(count, place::productAttr.of(&op).value_or(-1) + 1);
  for (Operation &op : function.getBody().front()) {
    onnx::ContractOp gradient = gradientProduct(&op);
    OpOperand *shared = gradient ? sharedUse(gradient) : nullptr;
    if (!shared || place::productAttr.isOn(&op)) continue;
    Operation *forward = shared->getOwner();
    if (!place::productAttr.isOn(forward)) place::productAttr.set(forward, count++);
    place::productAttr.copy(forward, &op);
  }
}

MirroredProducts::MirroredProducts(func::FuncOp function) {
  for (auto product : function.getOps<onnx::ContractOp>())
    if (auto number = place::productAttr.of(product); number && phaseOf(product) == Phase::Forward)
      forward[*number] = product;
}

std::optional<MirroredProduct> MirroredProducts::find(Operation *op) const {
  onnx::ContractOp gradient = gradientProduct(op);
  if (!gradient) return std::nullopt;
  const std::optional<int64_t> number = place::productAttr.of(op);
  onnx::ContractOp numbered = number ? forward.lookup(*number) : onnx::ContractOp();
  OpOperand *shared = numbered ? sharedWith(gradient, numbered) : sharedUse(gradient);
  if (!shared) return std::nullopt;
  auto forward = cast<onnx::ContractOp>(shared->getOwner());
  std::optional<FactorSharding> split = factorsOf(forward);
  if (!split) return std::nullopt;
  // Both rules number their factors by letters, each in its own order.
  DenseMap<int64_t, Axes> axesOfLetter;
  FactorRule from = forward.getFactorRule(), to = gradient.getFactorRule();
  for (size_t operand : {0, 1})
    for (auto [letter, factors] : llvm::zip_equal(lettersOf(forward, operand), from.operands[operand]))
      if (!factors.empty()) axesOfLetter[letter] = (*split)[factors[0]];
  MirroredProduct mirrored{FactorSharding(to.factors.size()), forward->getOperand(1 - shared->getOperandNumber())};
  for (size_t operand : {0, 1})
    for (auto [letter, factors] : llvm::zip_equal(lettersOf(gradient, operand), to.operands[operand]))
      if (!factors.empty()) mirrored.split[factors[0]] = axesOfLetter.lookup(letter);
  return mirrored;
}

} // namespace cleave::partition
