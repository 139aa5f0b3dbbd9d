// Why a collective is there, in the words of the person who reads the report: what is moved, over which axes, for whom.
//
//   %g = ... phase "backward"; @w's update reads it        "gradient of w summed over dp, each keeps its part"
//   %y = onnx.Contract at node "/mlp/down/MatMul"          "partial sums of /mlp/down/MatMul over tp"
//   onnx.read @w, ZeRO-3, read by "/fc/MatMul"             "w gathered over dp for /fc/MatMul"
//   the new value of @w, ZeRO-1                            "new value of w gathered over dp"
#pragma once
#include "dialects/dist/Dist.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "runtime/base/sharding/sharding.h"
#include <string>

namespace cleave::partition {

class CollectiveReasons {
public:
  // Reads the function while its reshards still stand.
  CollectiveReasons(mlir::func::FuncOp function, const mlir::SymbolTable &symbols);

  // The reason for one step that carries out `op`.
  std::string reason(dist::ReshardOp op, const dist::ReshardStep &step) const;
  // The parameter whose value or gradient `op` brings to another layout, or the node that makes the value; of a
  // gradient the node whose result it is of.
  std::string tensor(dist::ReshardOp op) const;

private:
  std::string subject(dist::ReshardOp op, const dist::ReshardStep &step) const;
  std::string purpose(dist::ReshardOp op) const;
  // With the node that uses it where the exporter's name says nothing: "val_43 (of node_MatMul_40)".
  std::string parameterName(mlir::StringRef name) const;

  // A value of the update that has the form of a parameter and belongs to it -> that parameter's name.
  llvm::DenseMap<mlir::Value, mlir::StringRef> belongsTo;
  const mlir::SymbolTable &symbols;
};

} // namespace cleave::partition
