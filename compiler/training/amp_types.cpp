#include "compiler/training/amp_types.h"
#include "dialects/onnx/keeps_type.h"
#include "dialects/onnx/kinds.h"

using namespace mlir;
namespace cleave::training {

AmpTypes::AmpType AmpTypes::typeOf(Value value) {
  if (auto found = known.find(value); found != known.end()) return found->second;
  const AmpType type = find(value);
  return known[value] = type;
}

// Recursive: what a value is made of is asked first, so values are best asked in the order of the program.
AmpTypes::AmpType AmpTypes::find(Value value) {
  Type element = getElementTypeOrSelf(value.getType());
  if (element == low) return Low;
  if (!isa<FloatType>(element)) return Neutral;
  Operation *op = value.getDefiningOp();
  if (!op || !element.isF32() || onnx::isReduction(op)) return Full;
  if (onnx::isSplat(value) || onnx::keepsTypeAttr.isOn(op)) return Neutral;
  if (isa<onnx::ExpOp, onnx::LogOp, onnx::Log1pOp, onnx::PowOp, onnx::ReciprocalOp, onnx::RsqrtOp>(op)) return Full;
  if (!onnx::isPointwise(op) && !onnx::isMovement(op) &&
      !isa<onnx::MaxPoolOp, onnx::MaxPoolGradOp, onnx::AveragePoolOp, onnx::AveragePoolGradOp>(op))
    return Full;
  AmpType type = Neutral;
  for (Value operand : op->getOperands()) type = std::max(type, typeOf(operand));
  return type;
}

} // namespace cleave::training
