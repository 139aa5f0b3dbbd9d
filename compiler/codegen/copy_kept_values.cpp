// CopyKeptValues: what a stage keeps for a later function of the same microbatch gets a buffer of its own, which
// PlanMemory puts in the slot. A kept value that is a view of another, a persistent tensor or kept twice is copied.
//
//   func @forward.0(...) -> (tensor<4x16xf32> {place.kept = 3})
//     %v = plan.view %y           %c = plan.copy %v
//     return %v               ->  return %c
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/command_building.h"
#include "compiler/codegen/command_list.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::codegen {
using namespace mlir;
namespace {

struct CopyKeptValues : PassWrapper<CopyKeptValues, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CopyKeptValues)
  StringRef getArgument() const override { return "copy-kept-values"; }
  StringRef getDescription() const override { return "kept values get buffers of their own"; }
  void getDependentDialects(DialectRegistry &registry) const override { registry.insert<plan::PlanDialect>(); }

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      llvm::DenseSet<Value> taken;
      for (OpOperand &operand : function.getBody().front().getTerminator()->getOpOperands()) {
        if (!place::keptAttr.ofResult(function, operand.getOperandNumber())) continue;
        Place place = placeOf(operand.get());
        Operation *definition = place.root.getDefiningOp();
        bool whole = place.offset == 0 && tensorBytes(place.root.getType()) == tensorBytes(operand.get().getType());
        bool own = definition && !isa<onnx::ReadOp, plan::ConstantCommandOp>(definition);
        if (whole && own && taken.insert(place.root).second) continue;
        operand.set(copyOf(operand.get(), operand.getOwner()));
      }
    }
  }

private:
  static Value copyOf(Value value, Operation *before) {
    OpBuilder builder(before);
    auto one = builder.getDenseI64ArrayAttr({1});
    int64_t elements = cast<RankedTensorType>(value.getType()).getNumElements();
    auto copy = plan::CopyCommandOp::create(builder, value.getLoc(), value.getType(), value,
                                            builder.getDenseI64ArrayAttr({elements}), one, one,
                                            constantAffine(builder, 0), builder.getI64IntegerAttr(0), FloatAttr());
    if (Operation *definition = value.getDefiningOp()) place::copy(definition, copy);
    return copy.getY();
  }
};

} // namespace

std::unique_ptr<Pass> createCopyKeptValues() { return std::make_unique<CopyKeptValues>(); }

} // namespace cleave::codegen
