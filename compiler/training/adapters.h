// Low-rank adapters (LoRA, https://arxiv.org/abs/2106.09685) beside the weights that the recipe's `lora` names, as PEFT
// has them.
//
//     lora: {match: ["*q_proj*"], rank: 8, alpha: 16}
//     h.0.q_proj.weight [64, 96], read by MatMul   ->   h.0.q_proj.lora_A.weight [64, 8]
//                                                       h.0.q_proj.lora_B.weight [8, 96]
#pragma once
#include "compiler/recipe/recipe.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"

namespace cleave::training {

struct Adapter {
  onnx::ParamOp weight;
  std::string module; // PyTorch's, "h.0.q_proj", or what the weight is called
  std::string a, b;   // names of the adapter's two matrices, [in, rank] and [rank, out]
  int64_t in = 0, out = 0;
  bool isInputMajor = false;                // the weight is [in, out], not [out, in]
  bool isQuantized = false;                 // and is held as integers
  mlir::Type element;                       // that the product computes with
  llvm::SmallVector<onnx::NodeOp> products; // all that multiply by it
};

// On an imported module, in the order of its parameters. Emits errors: a pattern that names no weight of a product, a
// matrix that something else reads, a rank that is larger than the matrix.
mlir::FailureOr<std::vector<Adapter>> findAdapters(mlir::ModuleOp module, const recipe::Recipe &recipe);

} // namespace cleave::training
