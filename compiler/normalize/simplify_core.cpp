#include "compiler/normalize/normalize.h"
#include "compiler/normalize/simplify.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_SIMPLIFYCORE
#define GEN_PASS_DEF_FOLDCONSTANTS
#include "compiler/normalize/Passes.h.inc"

namespace {

// Replaces every core op that `better` knows something better for; one walk, each op once.
LogicalResult replaceForward(ModuleOp module, function_ref<Value(Operation *, CoreBuilder &)> better) try {
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal()) continue;
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
      if (op.getNumResults() != 1 || !isa<RankedTensorType>(op.getResult(0).getType()) ||
          isa<onnx::NodeOp, onnx::ReadOp, onnx::ConstantOp>(op))
        continue;
      OpBuilder builder(&op);
      CoreBuilder b(builder, op.getLoc());
      if (Value value = better(&op, b)) {
        op.getResult(0).replaceAllUsesWith(value);
        op.erase();
      }
    }
  }
  return success();
} catch (const Failure &) {
  return failure();
}

Value folded(Operation *op, CoreBuilder &b) {
  DenseElementsAttr value = foldOp(op);
  return value ? b.compactConstant(value) : Value();
}

Value simplified(Operation *op, CoreBuilder &b) {
  Value simple = simplify(op, b);
  return simple ? simple : folded(op, b);
}

struct SimplifyCore : impl::SimplifyCoreBase<SimplifyCore> {
  void runOnOperation() override {
    if (failed(replaceForward(getOperation(), simplified))) signalPassFailure();
  }
};

struct FoldConstants : impl::FoldConstantsBase<FoldConstants> {
  void runOnOperation() override {
    if (failed(replaceForward(getOperation(), folded))) signalPassFailure();
  }
};

} // namespace
} // namespace cleave::normalize
