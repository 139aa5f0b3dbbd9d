#include "compiler/specialize/input_bounds.h"
#include "dialects/onnx/kinds.h"

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

// A value on the way from an argument to what uses it as an index.
struct Step {
  Value value;
  bool isWhole = true; // the argument's own numbers, not replaced where a mask says so
  bool isPart = false; // some entries of the argument: other entries may have other tables
};

struct Uses {
  IndexRange range;
  int64_t boundOfParts = 0;                  // the loosest one
  bool hasTable = false, hasClasses = false; // unchanged on the way to a Gather, to a comparison with all classes
  bool isOrdered = false;                    // compared with numbers: the graph may mask what is out of range

  void tighten(int64_t found, bool isPart) {
    if (isPart)
      boundOfParts = std::max(boundOfParts, found);
    else
      range.bound = range.bound == 0 ? found : std::min(range.bound, found);
  }
  void visit(OpOperand &use, const Step &at, SmallVectorImpl<Step> &next) {
    Operation *op = use.getOwner();
    auto [value, isWhole, isPart] = at;
    auto pass = [&, value = value, isPart = isPart](bool whole) {
      auto elements = [](Value one) { return cast<RankedTensorType>(one.getType()).getNumElements(); };
      next.push_back({op->getResult(0), whole, isPart || elements(op->getResult(0)) < elements(value)});
    };
    if (auto gather = dyn_cast<onnx::GatherOp>(op)) {
      if (use.getOperandNumber() != 1) return pass(isWhole); // its entries in another order
      tighten(cast<RankedTensorType>(gather.getTable().getType()).getDimSize(int64_t(gather.getAxis())), isPart);
      hasTable |= isWhole;
    } else if (auto product = dyn_cast<onnx::GroupedContractOp>(op)) {
      if (use.getOperandNumber() != 2) return; // a table, or its rows
      tighten(static_cast<int64_t>(product.getGroupCount()), isPart);
      hasTable |= isWhole;
    } else if (auto equal = dyn_cast<onnx::EqualOp>(op)) {
      Value other = equal->getOperand(1 - use.getOperandNumber());
      if (int64_t size = iotaSize(other)) {
        tighten(size, isPart);
        hasClasses |= isWhole;
      } else if (std::optional<double> value = onnx::repeatedNumber(other, true)) {
        const auto number = static_cast<int64_t>(*value); // of several losses once
        if (!llvm::is_contained(range.ignored, number)) range.ignored.push_back(number);
      }
    } else if (isa<onnx::LessOp, onnx::LessOrEqualOp, onnx::GreaterOp, onnx::GreaterOrEqualOp>(op)) {
      isOrdered = true;
    } else if (isa<onnx::WhereOp>(op)) {
      pass(false);
    } else if (onnx::isView(op) || isa<onnx::PadOp>(op)) {
      pass(isWhole);
    } else if (isa<onnx::CastOp>(op) &&
               !cast<RankedTensorType>(op->getResult(0).getType()).getElementType().isInteger(1)) {
      pass(isWhole);
    }
  }
};

} // namespace

IndexRange indexRange(BlockArgument argument, bool isLabel) {
  Uses uses;
  SmallVector<Step> pending{{argument}};
  llvm::SmallDenseSet<std::pair<Value, unsigned>> seen;
  while (!pending.empty()) {
    const Step at = pending.pop_back_val();
    if (!seen.insert({at.value, unsigned(at.isWhole) + 2 * unsigned(at.isPart)}).second) continue;
    for (OpOperand &use : at.value.getUses()) uses.visit(use, at, pending);
  }
  if (uses.range.bound == 0) uses.range.bound = uses.boundOfParts;
  if (uses.isOrdered && !isLabel) return uses.range;
  if (uses.hasClasses) uses.range.least = 0;
  if (uses.hasTable && !uses.hasClasses) uses.range.least = -uses.range.bound;
  return uses.range;
}

} // namespace cleave
