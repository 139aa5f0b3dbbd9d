#include "compiler/input_bounds.h"
#include "compiler/normalize/constants.h"
#include "dialects/onnx/Onnx.h"

using namespace mlir;
namespace cleave {
namespace {

// The size of the dimension that an Iota counts, through broadcasts and reshapes; 0: not an Iota.
int64_t iotaSize(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (auto iota = dyn_cast<onnx::IotaOp>(op))
      return cast<RankedTensorType>(iota.getY().getType()).getDimSize(int64_t(iota.getDim()));
    if (!isa<onnx::BroadcastOp, onnx::ReshapeOp, onnx::TransposeOp, onnx::CastOp>(op)) return 0;
    value = op->getOperand(0);
  }
  return 0;
}

// The one number that a value has everywhere.
std::optional<double> repeatedNumber(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<onnx::BroadcastOp, onnx::ReshapeOp, onnx::CastOp>(op)) break;
    value = op->getOperand(0);
  }
  return normalize::splatOf(value);
}

// The walk from an argument to what uses it as an index.
struct Uses {
  IndexRange range;
  bool hasTable = false, hasClasses = false; // unchanged on the way to a Gather, to a comparison with all classes
  bool isOrdered = false;                    // compared with numbers: the graph may mask what is out of range

  void tighten(int64_t found) { range.bound = range.bound == 0 ? found : std::min(range.bound, found); }
  // `isWhole`: the value is the argument's own, not replaced where a mask says so.
  void visit(OpOperand &use, bool isWhole, SmallVectorImpl<std::pair<Value, bool>> &next) {
    Operation *op = use.getOwner();
    if (auto gather = dyn_cast<onnx::GatherOp>(op)) {
      if (use.getOperandNumber() != 1) return next.push_back({gather.getY(), isWhole}); // its entries in another order
      tighten(cast<RankedTensorType>(gather.getTable().getType()).getDimSize(int64_t(gather.getAxis())));
      hasTable |= isWhole;
    } else if (auto equal = dyn_cast<onnx::EqualOp>(op)) {
      Value other = equal->getOperand(1 - use.getOperandNumber());
      if (int64_t size = iotaSize(other)) {
        tighten(size);
        hasClasses |= isWhole;
      } else if (std::optional<double> value = repeatedNumber(other)) {
        range.ignored.push_back(static_cast<int64_t>(*value));
      }
    } else if (isa<onnx::LessOp, onnx::LessOrEqualOp, onnx::GreaterOp, onnx::GreaterOrEqualOp>(op)) {
      isOrdered = true;
    } else if (isa<onnx::WhereOp>(op)) {
      next.push_back({op->getResult(0), false});
    } else if (isa<onnx::ReshapeOp, onnx::TransposeOp, onnx::BroadcastOp, onnx::SliceOp>(op)) {
      next.push_back({op->getResult(0), isWhole});
    } else if (isa<onnx::CastOp>(op) &&
               !cast<RankedTensorType>(op->getResult(0).getType()).getElementType().isInteger(1)) {
      next.push_back({op->getResult(0), isWhole});
    }
  }
};

} // namespace

IndexRange indexRange(BlockArgument argument, bool isLabel) {
  Uses uses;
  SmallVector<std::pair<Value, bool>> pending{{argument, true}};
  llvm::SmallDenseSet<std::pair<Value, unsigned>> seen;
  while (!pending.empty()) {
    auto [value, isWhole] = pending.pop_back_val();
    if (!seen.insert({value, isWhole}).second) continue;
    for (OpOperand &use : value.getUses()) uses.visit(use, isWhole, pending);
  }
  if (uses.isOrdered && !isLabel) return uses.range;
  if (uses.hasClasses) uses.range.least = 0;
  if (uses.hasTable && !uses.hasClasses) uses.range.least = -uses.range.bound;
  return uses.range;
}

} // namespace cleave
