#include "compiler/normalize/normalize.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_VERIFYCORE
#include "compiler/normalize/Passes.h.inc"

namespace {

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
