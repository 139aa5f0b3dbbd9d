#include "compiler/attention/attention.h"
#include "compiler/attention/softmax_pattern.h"
#include "dialects/onnx/formula.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cleave::attention {
#define GEN_PASS_DEF_GUARDEMPTYROWS
#include "compiler/attention/Passes.h.inc"

namespace {

// Replaces the uses of `value` except those in `exceptions`, which compute the replacement from it.
void replaceUsesExcept(Value value, Value replacement, ArrayRef<Operation *> exceptions) {
  value.replaceUsesWithIf(replacement, [&](OpOperand &use) { return !llvm::is_contained(exceptions, use.getOwner()); });
}

struct GuardEmptyRows : impl::GuardEmptyRowsBase<GuardEmptyRows> {
  void runOnOperation() override {
    SmallVector<Softmax> guarded;
    getOperation().walk([&](onnx::ExpOp exp) {
      if (auto softmax = matchSoftmax(exp); softmax && softmax->zeroEmptyRows) guarded.push_back(*softmax);
    });
    for (Softmax &softmax : guarded) {
      place::Stamp marker(place::phaseOf(softmax.max));
      OpBuilder builder(softmax.max->getNextNode());
      builder.setListener(&marker);
      onnx::Formula f(builder, softmax.max.getLoc());
      Value max = softmax.max.getY();
      auto element = cast<FloatType>(onnx::tensorType(max).getElementType());
      const double lowest = llvm::APFloat::getLargest(element.getFloatSemantics(), /*Negative=*/true).convertToDouble();
      auto isEmpty = f.make<onnx::LessOrEqualOp>(max, f.like(max, lowest / 2));
      Value shift = f.only(f.make<onnx::NotOp>(isEmpty), max);
      replaceUsesExcept(max, shift, {isEmpty.getDefiningOp(), shift.getDefiningOp()});
      builder.setInsertionPointAfter(softmax.sum);
      Value sum = softmax.sum.getY();
      Value divisor = f.where(isEmpty, f.like(sum, 1), sum);
      replaceUsesExcept(sum, divisor, {divisor.getDefiningOp()});
    }
  }
};

} // namespace
} // namespace cleave::attention
