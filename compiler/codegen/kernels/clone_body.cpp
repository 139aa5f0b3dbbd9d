#include "compiler/codegen/kernels/clone_body.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
namespace cleave::codegen {

Value cloneBody(linalg::GenericOp op, const IRMapping &captured, ValueRange arguments, OpBuilder &builder,
                llvm::function_ref<Value(int64_t loop)> indexOf) {
  Block &body = *op.getBody();
  auto kernel = op->getParentOfType<plan::KernelOp>();
  const bool fuses = !kernel || !kernel->hasAttr(roundsEachAttr);
  IRMapping mapping(captured);
  for (auto [argument, value] : llvm::zip(body.getArguments(), arguments)) mapping.map(argument, value);
  for (Operation &inner : body.without_terminator()) {
    if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
      Value at = indexOf(static_cast<int64_t>(index.getDim()));
      mapping.map(index.getResult(), arith::IndexCastOp::create(builder, inner.getLoc(), builder.getIndexType(), at));
    } else if (isa<UnrealizedConversionCastOp>(inner)) { // between signed or unsigned and signless: the same bits
      mapping.map(inner.getResult(0), mapping.lookup(inner.getOperand(0)));
    } else {
      Operation *clone = builder.clone(inner, mapping);
      if (auto fast = dyn_cast<arith::ArithFastMathInterface>(clone); fast && fuses) {
        arith::FastMathFlagsAttr flags = fast.getFastMathFlagsAttr(); // conversions may have none
        arith::FastMathFlags now = flags ? flags.getValue() : arith::FastMathFlags::none;
        clone->setAttr(fast.getFastMathAttrName(),
                       arith::FastMathFlagsAttr::get(inner.getContext(), now | arith::FastMathFlags::contract));
      }
    }
  }
  return mapping.lookup(body.getTerminator()->getOperand(0));
}

} // namespace cleave::codegen
