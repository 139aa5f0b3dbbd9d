// The products of a function by a weight, and which of them stay in 16 bits in a training in fp8.
//
//   %y = onnx.Contract %x, (onnx.read @w)      a product by @w, whose operand 1 is the weight
//
//   weights with a product behind which there is no other (the head), or those that the recipe names instead
//   weights that are also looked up: a table has 16 bits
//   weights whose matrix has a side that is no multiple of 16: no library multiplies them
#pragma once
#include "compiler/recipe/recipe.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::training {

struct WeightProduct {
  onnx::ContractOp op;
  llvm::StringRef weight;
  unsigned weightOperand;
};

// The products of the forward pass in f32 that have a parameter, moved or not, as one of their operands.
llvm::SmallVector<WeightProduct> weightProducts(mlir::func::FuncOp function, const mlir::SymbolTable &symbols);

// The weights whose products stay in 16 bits, each with the reason: {"head.weight", "the last product"}.
std::map<std::string, std::string> weightsToKeep(mlir::func::FuncOp function, llvm::ArrayRef<WeightProduct> products,
                                                 const recipe::Recipe &recipe, const mlir::SymbolTable &symbols);

} // namespace cleave::training
