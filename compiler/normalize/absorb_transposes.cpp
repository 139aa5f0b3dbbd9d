// AbsorbTransposes: a Transpose that feeds a Contract becomes an order of its index arrays.
//
//   %t = onnx.Transpose %w {perm = [1, 0]} ; onnx.Contract %x, %t  ([0,1],[1,2] -> [0,2])
//   becomes onnx.Contract %x, %w  ([0,1],[2,1] -> [0,2])
//
// A Transpose that is the only user of a Contract becomes an order of its result.
#include "compiler/normalize/core_builder.h"
#include "compiler/normalize/normalize.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

struct AbsorbTransposes : PassWrapper<AbsorbTransposes, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(AbsorbTransposes)
  StringRef getArgument() const final { return "absorb-transposes"; }
  StringRef getDescription() const final { return "let contractions read transposed operands where they lie"; }
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

std::unique_ptr<Pass> createAbsorbTransposesPass() { return std::make_unique<AbsorbTransposes>(); }

} // namespace cleave::normalize
