// Which dimension of each input counts samples, and how many there are.
//
//   ids ["batch", 64], mask [1, 64]          dims {batch: 8}     samples along dimension 0 of ids; mask is fed whole
//   x [6, "n", 5]                            dims {n: 8}         along dimension 1
//   x ["s", "n", 5], through an LSTM over s  dims {s: 6, n: 8}   along dimension 1: the entries of "s" meet in the LSTM
//   x [32, 20]                               dims {batch: 8}     exported for 32 samples, wanted for 8
#pragma once
#include "compiler/recipe/recipe.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <string>
#include <vector>

namespace cleave {

struct Batch {
  std::string symbol;        // the symbolic dimension that counts samples; empty: the batch is fixed
  int64_t samples = 1;       // of a step
  int64_t exported = 1;      // of a fixed batch: as the model was exported
  std::vector<int64_t> dims; // by input: the dimension; -1: none, all samples read the same
};

// By the name "batch", or one that has it in it; else by the first dimension along which `areApart` holds: each of its
// entries goes through the model by itself; else the first. `areApart` is asked only where several dimensions could be
// meant. `model`: @model as imported.
Batch findBatch(mlir::func::FuncOp model, const recipe::Recipe &recipe,
                llvm::function_ref<bool(const Batch &)> areApart);

// Where samples lie otherwise than along the first dimension of all inputs, in words; empty: nowhere.
std::string describeBatch(mlir::func::FuncOp model, const Batch &batch);

} // namespace cleave
