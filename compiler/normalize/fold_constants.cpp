#include "compiler/normalize/core_builder.h"
#include "compiler/normalize/normalize.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_FOLDCONSTANTS
#include "compiler/normalize/Passes.h.inc"

namespace {

struct FoldConstants : impl::FoldConstantsBase<FoldConstants> {
  void runOnOperation() override try {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
        if (!isa<InferTypeOpInterface>(op) || op.getNumResults() != 1) continue;
        DenseElementsAttr value = foldOp(&op);
        if (!value) continue;
        OpBuilder builder(&op);
        op.getResult(0).replaceAllUsesWith(CoreBuilder(builder, op.getLoc()).compactConstant(value));
        op.erase();
      }
    }
  } catch (const Failure &) {
    signalPassFailure();
  }
};

} // namespace
} // namespace cleave::normalize
