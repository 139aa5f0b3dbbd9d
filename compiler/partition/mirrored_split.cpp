#include "compiler/partition/mirrored_split.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
namespace {

// A product over index letters; `op` is null for other operations.
struct Product {
  Operation *op = nullptr;
  ArrayRef<int64_t> operands[2], result;

  explicit operator bool() const { return op; }
  explicit Product(Operation *of) {
    auto take = [&](auto product) {
      op = product;
      operands[0] = product.getLhsIndices(), operands[1] = product.getRhsIndices();
      result = product.getResultIndices();
    };
    if (of) llvm::TypeSwitch<Operation *>(of).Case<onnx::ContractOp, onnx::GroupedContractOp>(take);
  }
};

// Is `gradient` the derivative of `forward` by its operand `other`, with `shared` as its other operand on both sides?
bool differentiates(const Product &gradient, size_t own, const Product &forward, size_t shared) {
  return gradient.operands[own] == forward.operands[shared] && gradient.operands[1 - own] == forward.result &&
         gradient.result == forward.operands[1 - shared];
}

// The use of the operand that both have by the forward product; null for none.
OpOperand *sharedUse(const Product &gradient) {
  for (size_t own : {0, 1})
    for (OpOperand &use : gradient.op->getOperand(own).getUses()) {
      const Product forward(use.getOwner());
      if (forward && use.getOperandNumber() < 2 && phaseOf(forward.op) == Phase::Forward &&
          forward.op->getLoc() == gradient.op->getLoc() &&
          differentiates(gradient, own, forward, use.getOperandNumber()))
        return &use;
    }
  return nullptr;
}

OpOperand *sharedWith(const Product &gradient, const Product &forward) {
  for (size_t own : {0, 1})
    for (size_t shared : {0, 1})
      if (differentiates(gradient, own, forward, shared)) return &forward.op->getOpOperand(shared);
  return nullptr;
}

FactorRule ruleOf(const Product &product) { return cast<onnx::FactorRuleOpInterface>(product.op).getFactorRule(); }

Product gradientProduct(Operation *op) { return Product(phaseOf(op) == Phase::Backward ? op : nullptr); }

} // namespace

void numberProducts(func::FuncOp function) {
  int64_t count = 0; // behind the numbers that there are
  for (Operation &op : function.getBody().front()) count = std::max(count, place::productAttr.of(&op).value_or(-1) + 1);
  for (Operation &op : function.getBody().front()) {
    const Product gradient = gradientProduct(&op);
    OpOperand *shared = gradient ? sharedUse(gradient) : nullptr;
    if (!shared || place::productAttr.isOn(&op)) continue;
    Operation *forward = shared->getOwner();
    if (!place::productAttr.isOn(forward)) place::productAttr.set(forward, count++);
    place::productAttr.copy(forward, &op);
  }
}

MirroredProducts::MirroredProducts(func::FuncOp function) {
  for (Operation &op : function.getBody().front())
    if (auto number = place::productAttr.of(&op); number && phaseOf(&op) == Phase::Forward) forward[*number] = &op;
}

std::optional<MirroredProduct> MirroredProducts::find(Operation *op) const {
  const Product gradient = gradientProduct(op);
  if (!gradient) return std::nullopt;
  const std::optional<int64_t> number = place::productAttr.of(op);
  Operation *numbered = number ? forward.lookup(*number) : nullptr;
  OpOperand *shared = numbered ? sharedWith(gradient, Product(numbered)) : sharedUse(gradient);
  if (!shared) return std::nullopt;
  const Product product(shared->getOwner());
  std::optional<FactorSharding> split = factorsOf(product.op);
  if (!split) return std::nullopt;
  // Both rules number their factors by letters, each in its own order.
  auto forEach = [](const Product &of, const FactorRule &rule, auto body) { // body(letter, its factor)
    for (auto [letters, factors] : {std::pair{of.operands[0], &rule.operands[0]},
                                    {of.operands[1], &rule.operands[1]},
                                    {of.result, &rule.results[0]}})
      for (auto [letter, factor] : llvm::zip_equal(letters, *factors))
        if (!factor.empty()) body(letter, factor[0]);
  };
  const FactorRule from = ruleOf(product), to = ruleOf(gradient);
  DenseMap<int64_t, Axes> axesOfLetter;
  forEach(product, from, [&](int64_t letter, int64_t factor) { axesOfLetter[letter] = (*split)[factor]; });
  MirroredProduct mirrored{FactorSharding(to.factors.size()), product.op->getOperand(1 - shared->getOperandNumber())};
  forEach(gradient, to, [&](int64_t letter, int64_t factor) { mirrored.split[factor] = axesOfLetter.lookup(letter); });
  return mirrored;
}

} // namespace cleave::partition
