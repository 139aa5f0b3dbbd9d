#include "compiler/codegen/codegen.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/command_list.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::codegen {
#define GEN_PASS_DEF_COPYKEPTVALUES
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

struct CopyKeptValues : impl::CopyKeptValuesBase<CopyKeptValues> {
  // Copies a saved result unless it is the only use of a whole buffer that a command made.
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      llvm::DenseSet<Value> seenRoots;
      for (OpOperand &operand : function.getBody().front().getTerminator()->getOpOperands()) {
        if (!place::keptAttr.ofResult(function, operand.getOperandNumber())) continue;
        BufferView place = bufferViewOf(operand.get());
        Operation *definition = place.root.getDefiningOp();
        bool coversBuffer = place.offset == 0 && bytesOf(place.root.getType()) == bytesOf(operand.get().getType());
        bool isCommandResult = definition && !isa<onnx::ReadOp, plan::ConstantCommandOp>(definition);
        if (coversBuffer && isCommandResult && seenRoots.insert(place.root).second) continue;
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
} // namespace cleave::codegen
