#include "compiler/normalize/core_builder.h"
#include "compiler/normalize/normalize.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_ABSORBTRANSPOSES
#include "compiler/normalize/Passes.h.inc"

namespace {

struct AbsorbTransposes : impl::AbsorbTransposesBase<AbsorbTransposes> {
  void runOnOperation() override {
    getOperation().walk([&](onnx::TransposeOp transpose) {
      auto contract = transpose.getX().getDefiningOp<onnx::ContractOp>();
      if (!contract || !contract->hasOneUse()) return;
      Dims order;
      for (int64_t d : transpose.getPerm()) order.push_back(contract.getResultIndices()[d]);
      contract.setResultIndices(order);
      contract.getResult().setType(cast<RankedTensorType>(transpose.getType()));
      transpose.getResult().replaceAllUsesWith(contract.getResult());
      transpose.erase();
    });
    getOperation().walk([&](onnx::ContractOp contract) {
      if (!contract.getLhs().getDefiningOp<onnx::TransposeOp>() &&
          !contract.getRhs().getDefiningOp<onnx::TransposeOp>())
        return;
      OpBuilder builder(contract);
      CoreBuilder b(builder, contract.getLoc());
      Value y = b.contract(contract.getLhs(), contract.getRhs(), contract.getLhsIndices(), contract.getRhsIndices(),
                           contract.getResultIndices());
      contract.getResult().replaceAllUsesWith(y);
      contract.erase();
    });
  }
};

} // namespace
} // namespace cleave::normalize
