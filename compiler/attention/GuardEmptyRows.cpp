// GuardEmptyRows: a softmax whose empty rows are guarded afterwards is guarded before, so that its gradient is, too.
//
//   m = ReduceMax x;  e = Exp(x - Broadcast m);  s = ReduceSum e;  p = e / Broadcast s;  p' = Where(IsNaN p, 0, p)
//   ->  empty = (m <= lowest / 2);  m = Where(empty, 0, m), s = Where(empty, 1, s) where they are read
//
// Exporters mask with the type's lowest number as well as with -inf: PyTorch 2.15 writes scaled_dot_product_attention
// so, and guards what PyTorch itself masks with -inf.
#include "compiler/attention/attention.h"
#include "compiler/attention/softmax_pattern.h"
#include "dialects/onnx/formula.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cleave::attention {
namespace {

// Lets readers of `value` read `other` instead, but for the operations that made it.
void replaceReaders(Value value, Value other, ArrayRef<Operation *> makers) {
  value.replaceUsesWithIf(other, [&](OpOperand &use) { return !llvm::is_contained(makers, use.getOwner()); });
}

struct GuardEmptyRows : PassWrapper<GuardEmptyRows, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(GuardEmptyRows)
  StringRef getArgument() const final { return "guard-empty-rows"; }
  StringRef getDescription() const final { return "a softmax without any key is 0, and so is its gradient"; }

  void runOnOperation() override {
    SmallVector<Softmax> found;
    getOperation().walk([&](onnx::ExpOp exp) {
      if (auto softmax = matchSoftmax(exp); softmax && softmax->zeroEmptyRows) found.push_back(*softmax);
    });
    for (Softmax &softmax : found) {
      place::Stamp marker(place::phaseOf(softmax.max));
      OpBuilder builder(softmax.max->getNextNode());
      builder.setListener(&marker);
      onnx::Formula f(builder, softmax.max.getLoc());
      Value max = softmax.max.getY();
      auto element = cast<FloatType>(onnx::tensorType(max).getElementType());
      const double lowest = llvm::APFloat::getLargest(element.getFloatSemantics(), /*Negative=*/true).convertToDouble();
      auto isEmpty = f.make<onnx::LessOrEqualOp>(max, f.like(max, lowest / 2));
      Value shift = f.only(f.make<onnx::NotOp>(isEmpty), max);
      replaceReaders(max, shift, {isEmpty.getDefiningOp(), shift.getDefiningOp()});
      builder.setInsertionPointAfter(softmax.sum);
      Value sum = softmax.sum.getY();
      Value divisor = f.where(isEmpty, f.like(sum, 1), sum);
      replaceReaders(sum, divisor, {divisor.getDefiningOp()});
    }
  }
};

} // namespace

std::unique_ptr<Pass> createGuardEmptyRows() { return std::make_unique<GuardEmptyRows>(); }

} // namespace cleave::attention
