#include "compiler/partition/floating_values.h"

using namespace mlir;

namespace cleave::partition {

FloatingValues::FloatingValues(func::FuncOp function) {
  for (auto write : function.getOps<onnx::WriteOp>()) written.insert(write.getParamAttr());
  for (Operation &op : function.getBody().front())
    if (auto kind = kindOf(&op)) kinds[&op] = *kind;
}

bool FloatingValues::isAnchored(Operation *op) {
  auto cost = dyn_cast<onnx::CostOpInterface>(op);
  return op->getNumRegions() > 0 || (cost && cost.getKind().form >= dist::Form::Pool);
}

std::optional<FloatingValues::Kind> FloatingValues::kindOf(Operation *op) const {
  if (auto read = dyn_cast<onnx::ReadOp>(op)) {
    if (written.contains(read.getParamAttr())) return std::nullopt;
    return Kind::FromParameter;
  }
  if (!isPure(op) || op->hasTrait<OpTrait::IsTerminator>() || isAnchored(op)) return std::nullopt;
  bool parameter = false;
  for (Value operand : op->getOperands()) {
    Operation *producer = operand.getDefiningOp();
    if (!producer) continue;
    auto known = kinds.find(producer);
    if (known == kinds.end()) return std::nullopt;
    parameter |= known->second == Kind::FromParameter;
  }
  if (!parameter) return Kind::FromInputs;
  bool laysOut = op->getName().getDialectNamespace() == "dist" ||
                 isa<onnx::TransposeOp, onnx::ReshapeOp, onnx::CastOp, onnx::BroadcastOp>(op);
  return laysOut ? std::optional(Kind::FromParameter) : std::nullopt;
}

} // namespace cleave::partition
