// Stacks the branches of a mixture of experts: the same operations in each, on weights of its own, become one with a
// new first dimension for the branches.
//
//   %y0 = Contract %x, read @e.0.w ; %y1 = Contract %x, read @e.1.w   ->   %y = Contract %x, read @e.*.w : [2, ..]
#pragma once
#include "compiler/normalize/core_builder.h"
#include "llvm/ADT/StringMap.h"
#include <map>

namespace cleave::normalize {

// The same place in every branch.
struct Bundle {
  enum Kind : uint8_t { Shared, Weights, Slices, Constants, Same } kind = Shared;
  Values values;                   // one a branch; Shared: the first stands for all
  llvm::SmallVector<int> operands; // bundles, of Same
  int64_t dim = 0;                 // of Slices: the one along which the branches have consecutive parts
};

using onnx::isSum;

class BranchStacker {
public:
  // `reads`: how often each parameter is read.
  BranchStacker(mlir::SymbolTable &symbols, llvm::StringMap<int> &reads) : symbols(symbols), reads(reads) {}

  // The branches' values as one with a new first dimension; `reader`: the operation that needs them. Null: these are no
  // experts. `chosen`: only if the branches themselves say which part of a choice they are.
  mlir::Value stack(llvm::ArrayRef<mlir::Value> branches, mlir::Operation *reader, bool chosen);
  // What is left of the branches when nobody reads their sum any more.
  void eraseBranches();

private:
  // The bundle of these values; -1: they are not of one form.
  int match(Values values);
  bool describe(Bundle &bundle);
  bool describeReads(Bundle &bundle);
  // Branch i reads part i of one tensor.
  bool describeSlices(Bundle &bundle);
  static bool isStackable(mlir::Operation *op);
  // Do the branches differ in a product's weights?
  bool haveWeights() const;
  // And in what chooses between them?
  bool haveChoice() const;
  // Nothing else may need an old weight, or what is made with it: the reader alone, or the sum that it is the end of.
  bool isSelfContained(mlir::Operation *reader) const;
  // A value with a first dimension of the branches; of a Shared bundle the value as it is.
  mlir::Value build(int number, CoreBuilder &b);
  mlir::Value buildSame(mlir::Operation *op, Values operands, llvm::ArrayRef<bool> stacked, CoreBuilder &b);
  mlir::Value buildSlices(const Bundle &bundle, CoreBuilder &b);
  mlir::Value buildConstants(const Bundle &bundle, CoreBuilder &b);
  mlir::Value buildWeights(const Bundle &bundle, CoreBuilder &b);

  struct InOrder {
    bool operator()(const Values &a, const Values &b) const;
  };

  mlir::SymbolTable &symbols;
  llvm::StringMap<int> &reads;
  int64_t count = 0; // branches
  std::vector<Bundle> bundles;
  std::map<Values, int, InOrder> numbers;
  llvm::DenseMap<int, mlir::Value> built;
  llvm::SmallVector<onnx::ParamOp> pieces;
};

} // namespace cleave::normalize
