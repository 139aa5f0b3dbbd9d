#include "compiler/normalize/normalize.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_ERASEDEADCODE
#define GEN_PASS_DEF_VERIFYCORE
#include "compiler/normalize/Passes.h.inc"

namespace {

struct EraseDeadCode : impl::EraseDeadCodeBase<EraseDeadCode> {
  void runOnOperation() override {
    getOperation().walk([](func::FuncOp function) {
      if (function.isExternal()) return;
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (!op.hasTrait<OpTrait::IsTerminator>() && op.use_empty() && (isPure(&op) || isa<onnx::ReadOp>(op)))
          op.erase();
    });
  }
};

struct VerifyCore : impl::VerifyCoreBase<VerifyCore> {
  void runOnOperation() override {
    auto function = getOperation().lookupSymbol<func::FuncOp>("model");
    if (!function) {
      getOperation().emitError("has no function @model");
      return signalPassFailure();
    }
    bool good = true;
    for (Operation &op : function.getBody().front()) {
      bool isCore = isa<InferTypeOpInterface>(op) && op.getName().getDialectNamespace() == "onnx";
      if (!isCore && !isa<onnx::ReadOp, onnx::WriteOp, func::ReturnOp>(op)) {
        op.emitOpError("is not a core op: nothing of the kind may be left after normalize");
        good = false;
      }
      for (Value result : op.getResults()) {
        auto type = dyn_cast<RankedTensorType>(result.getType());
        if (type && type.hasStaticShape()) continue;
        op.emitOpError("has a result without static shape");
        good = false;
      }
    }
    if (!good) signalPassFailure();
  }
};

} // namespace
} // namespace cleave::normalize
