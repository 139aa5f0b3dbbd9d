#include "compiler/codegen/codegen.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::codegen {
#define GEN_PASS_DEF_ABSORBCONTRACTTRANSPOSES
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

// The operand's indices when its Transpose is skipped.
SmallVector<int64_t> beforeTranspose(ArrayRef<int64_t> indices, ArrayRef<int64_t> perm) {
  SmallVector<int64_t> before(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) before[perm[i]] = indices[i];
  return before;
}

void absorbOperands(onnx::ContractOp contract) {
  while (auto transpose = contract.getLhs().getDefiningOp<onnx::TransposeOp>()) {
    contract.setLhsIndices(beforeTranspose(contract.getLhsIndices(), transpose.getPerm()));
    contract.getLhsMutable().assign(transpose.getX());
  }
  while (auto transpose = contract.getRhs().getDefiningOp<onnx::TransposeOp>()) {
    contract.setRhsIndices(beforeTranspose(contract.getRhsIndices(), transpose.getPerm()));
    contract.getRhsMutable().assign(transpose.getX());
  }
}

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
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      for (auto contract : function.getOps<onnx::ContractOp>()) {
        absorbOperands(contract);
        absorbResult(contract);
      }
      for (auto transpose : llvm::make_early_inc_range(function.getOps<onnx::TransposeOp>()))
        if (transpose.use_empty()) transpose.erase();
    }
  }
};

} // namespace
} // namespace cleave::codegen
