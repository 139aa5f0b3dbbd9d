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

onnx::ContractOp forwardOf(onnx::ContractOp gradient) {
  for (size_t own : {0, 1})
    for (OpOperand &use : gradient->getOperand(own).getUses()) {
      auto forward = dyn_cast<onnx::ContractOp>(use.getOwner());
      if (forward && phaseOf(forward) == "forward" && forward.getLoc() == gradient.getLoc() &&
          differentiates(gradient, own, forward, use.getOperandNumber()))
        return forward;
    }
  return {};
}

} // namespace

std::optional<FactorSharding> mirroredSplit(Operation *op) {
  auto gradient = dyn_cast<onnx::ContractOp>(op);
  if (!gradient || phaseOf(op) != "backward") return std::nullopt;
  onnx::ContractOp forward = forwardOf(gradient);
  std::optional<FactorSharding> split = forward ? factorsOf(forward) : std::nullopt;
  if (!split) return std::nullopt;
  // Both rules number their factors by letters, each in its own order.
  DenseMap<int64_t, Axes> axesOfLetter;
  FactorRule from = forward.getFactorRule(), to = gradient.getFactorRule();
  for (size_t operand : {0, 1})
    for (auto [letter, factors] : llvm::zip_equal(lettersOf(forward, operand), from.operands[operand]))
      if (!factors.empty()) axesOfLetter[letter] = (*split)[factors[0]];
  FactorSharding mirrored(to.factors.size());
  for (size_t operand : {0, 1})
    for (auto [letter, factors] : llvm::zip_equal(lettersOf(gradient, operand), to.operands[operand]))
      if (!factors.empty()) mirrored[factors[0]] = axesOfLetter.lookup(letter);
  return mirrored;
}

} // namespace cleave::partition
