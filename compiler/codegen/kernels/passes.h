// The passes that turn clusters of core ops into kernels, in the order in which compiler/pipeline.cpp runs them.
#pragma once
#include "mlir/Pass/Pass.h"
#include <memory>

namespace cleave::codegen {

// Takes factors that all elements of a column share out of the column's sum: a batch norm's backward sums become one of
// the gradient and one of its product with the normalized tensor.
std::unique_ptr<mlir::Pass> createPullFactorsPass();
// Cuts a reduction over very many elements to few results in two, so that threads share it: sum of 2^20 elements
// becomes 64 sums of 2^14, then one of 64. The cut depends on the shape and the kind of device only.
std::unique_ptr<mlir::Pass> createSplitReductionsPass(bool gpu = false);
// A sum of more tensors than a kernel has buffers becomes a tree of sums.
std::unique_ptr<mlir::Pass> createSplitSumsPass();
// Clones forward elementwise ops to where the backward phase needs their values, when what they are computed from is
// alive then anyway.
std::unique_ptr<mlir::Pass> createRematerializeCheapPass();
// Two halves side by side that elementwise ops read, as rotary embeddings turn them, are selected from in their
// kernels.
std::unique_ptr<mlir::Pass> createSelectHalvesPass();
// Groups elementwise ops, reductions and the views between them into clusters; each becomes a plan.kernel, equal ones
// the same, and a plan.launch.
std::unique_ptr<mlir::Pass> createFormClustersPass();
// Keeps on each plan.kernel what it computes, for the plan (plan.proto, Kernel.operations).
std::unique_ptr<mlir::Pass> createRecordOperationsPass();
// Expresses the core ops of each plan.kernel as linalg.generic.
std::unique_ptr<mlir::Pass> createLowerKernelsToLinalgPass();
// Writes the range of each kernel (extent, grain) and its inplace pairs on the launches.
// `gpu`: the kernels are for a GPU, a grain is what a block of threads does.
std::unique_ptr<mlir::Pass> createScheduleKernelsPass(bool gpu = false);

// Lets cleave-opt run each by name: -pull-factors, -split-reductions, -split-sums, -rematerialize-cheap,
// -select-halves, -form-clusters, -record-operations, -lower-kernels-to-linalg, -schedule-kernels.
void registerKernelPasses();

// Sets plan.operations: the block's core ops, as the function `name`.
mlir::LogicalResult recordOperations(mlir::Block &block, llvm::StringRef name, mlir::Operation *on);

} // namespace cleave::codegen
