// One onnx.Contract as a plan.contract over strides, with the copies its layout asks for (contract_layout.h).
//
//   %y = onnx.Contract %x, %w {[0,1,2], [2,3] -> [0,1,3]} : 8x16x64, 64x256
//   %y = plan.contract %x, %w {m = 128, n = 256, k = 64, lhs_strides = [64, 1], rhs_strides = [256, 1], ...}
#pragma once
#include "dialects/onnx/Onnx.h"
#include "dialects/plan/Plan.h"

namespace cleave::codegen {

// Builds the commands at the builder's place and returns the result; the op itself is left for the caller to erase.
// `symbols`: the module's, where it reads a parameter.
mlir::Value lowerContract(mlir::OpBuilder &builder, onnx::ContractOp op, const mlir::SymbolTable &symbols);

mlir::Value lowerGroupedContract(mlir::OpBuilder &builder, onnx::GroupedContractOp op);

// A product as a command, with what lowering it made besides: undone where it does not lie as it must.
class LoweredProduct {
public:
  LoweredProduct(mlir::OpBuilder place, onnx::ContractOp contract, const mlir::SymbolTable &symbols);
  plan::ContractCommandOp get() const { return command; } // null: its result is copied afterwards
  void undo();

private:
  struct Recorder : mlir::OpBuilder::Listener {
    explicit Recorder(llvm::SmallVector<mlir::Operation *> &made) : made(made) {}
    void notifyOperationInserted(mlir::Operation *op, mlir::OpBuilder::InsertPoint) override { made.push_back(op); }
    llvm::SmallVector<mlir::Operation *> &made;
  };
  llvm::SmallVector<mlir::Operation *> made;
  plan::ContractCommandOp command;
};

} // namespace cleave::codegen
