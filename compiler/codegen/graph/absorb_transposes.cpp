#include "compiler/codegen/codegen.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::codegen {
#define GEN_PASS_DEF_ABSORBCONTRACTTRANSPOSES
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

void absorbResult(onnx::ContractOp contract) {
  while (contract.getY().hasOneUse()) {
    auto transpose = dyn_cast<onnx::TransposeOp>(*contract.getY().user_begin());
    if (!transpose) return;
    SmallVector<int64_t> indices;
    for (int64_t dim : transpose.getPerm()) indices.push_back(contract.getResultIndices()[dim]);
    contract.setResultIndices(indices);
    contract.getY().setType(cast<RankedTensorType>(transpose.getY().getType()));
    transpose.getY().replaceAllUsesWith(contract.getY());
    transpose.erase();
  }
}

struct AbsorbContractTransposes : impl::AbsorbContractTransposesBase<AbsorbContractTransposes> {
  void runOnOperation() override {
    PatternRewriter rewriter(&getContext());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      for (auto contract : function.getOps<onnx::ContractOp>()) {
        while (succeeded(onnx::ContractOp::canonicalize(contract, rewriter))) continue;
        absorbResult(contract);
      }
      for (auto transpose : llvm::make_early_inc_range(function.getOps<onnx::TransposeOp>()))
        if (transpose.use_empty()) transpose.erase();
    }
  }
};

} // namespace
} // namespace cleave::codegen
