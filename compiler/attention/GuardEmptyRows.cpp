// GuardEmptyRows: a softmax row without any key divides 0 by 0, and exporters replace the NaN afterwards, which leaves
// its gradient NaN. This pass changes the maximum and the sum of such a row, so that its gradient is 0 as well.
//
//   m = ReduceMax x;  e = Exp(x - Broadcast m);  s = ReduceSum e;  p = e / Broadcast s;  p' = Where(IsNaN p, 0, p)
//   ->  empty = (m <= lowest / 2);  readers of m read Where(empty, 0, m), readers of s read Where(empty, 1, s)
//
// A row is empty when its maximum is -inf or near the type's lowest number: PyTorch 2.15 exports
// scaled_dot_product_attention with a mask of the lowest number where PyTorch itself masks with -inf.
#include "compiler/attention/attention.h"
#include "compiler/attention/softmax_pattern.h"
#include "dialects/onnx/formula.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cleave::attention {
namespace {

// Replaces the uses of `value` except those in `exceptions`, which compute the replacement from it.
void replaceUsesExcept(Value value, Value replacement, ArrayRef<Operation *> exceptions) {
  value.replaceUsesWithIf(replacement, [&](OpOperand &use) { return !llvm::is_contained(exceptions, use.getOwner()); });
}

struct GuardEmptyRows : PassWrapper<GuardEmptyRows, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(GuardEmptyRows)
  StringRef getArgument() const final { return "guard-empty-rows"; }
  StringRef getDescription() const final { return "a softmax without any key is 0, and so is its gradient"; }

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

std::unique_ptr<Pass> createGuardEmptyRows() { return std::make_unique<GuardEmptyRows>(); }

} // namespace cleave::attention
