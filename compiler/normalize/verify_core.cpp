// VerifyCore: the border of the normalize phase. Only core ops, persistent reads and writes, and static shapes are
// left. EraseDeadCode: ops, reads and symbols that nothing needs.
#include "compiler/normalize/normalize.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

struct EraseDeadCode : PassWrapper<EraseDeadCode, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(EraseDeadCode)
  StringRef getArgument() const final { return "erase-dead-code"; }
  StringRef getDescription() const final { return "erase ops and reads whose results nobody uses"; }
  void runOnOperation() override {
    getOperation().walk([](func::FuncOp function) {
      if (function.isExternal()) return;
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (!op.hasTrait<OpTrait::IsTerminator>() && op.use_empty() && (isPure(&op) || isa<onnx::ReadOp>(op)))
          op.erase();
    });
  }
};

struct VerifyCore : PassWrapper<VerifyCore, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(VerifyCore)
  StringRef getArgument() const final { return "verify-core"; }
  StringRef getDescription() const final { return "check that only core ops of static shape are left"; }
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

std::unique_ptr<Pass> createEraseDeadCodePass() { return std::make_unique<EraseDeadCode>(); }
std::unique_ptr<Pass> createVerifyCorePass() { return std::make_unique<VerifyCore>(); }

} // namespace cleave::normalize
