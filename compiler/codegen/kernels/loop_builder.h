// Writes one function of the kernel ABI, loop by loop: index arithmetic, loads and stores of elements, nested loops.
//
//   LoopBuilder loops(loc, module, "k0");
//   Value i = loops.open(loops.begin(), loops.end(), /*isParallel=*/true);
//   Value x = loops.load(loops.here(), loops.buffer(0), f32, i, true);
//   loops.store(x, loops.buffer(1), i, true);
//   loops.close();  loops.finish();
//
// A parallel loop is one whose iterations may run side by side; loads and stores marked as in a parallel loop tell
// LLVM's vectorizer that no check for overlapping buffers is needed. Other loops are never vectorized: that would need
// such a check, and the bits of a sum would then depend on where buffers lie. i1 is a byte in memory.
#pragma once
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::codegen {

class LoopBuilder {
public:
  LoopBuilder(mlir::Location loc, mlir::ModuleOp module, llvm::StringRef symbol);

  mlir::OpBuilder &here() { return builder; }       // inside the innermost open loop
  mlir::OpBuilder &entry() { return entryBuilder; } // before all loops
  mlir::Value begin() { return function.getArgument(0); }
  mlir::Value end() { return function.getArgument(1); }
  mlir::Value buffer(int64_t number);
  mlir::Value scalar(int64_t number);                   // i64
  mlir::Value array(mlir::Type element, int64_t count); // on the stack

  mlir::Value open(mlir::Value begin, mlir::Value end, bool isParallel); // the loop's index
  void close();
  void finish();

  mlir::Value load(mlir::OpBuilder &at, mlir::Value memory, mlir::Type element, mlir::Value index, bool inParallelLoop);
  void store(mlir::Value value, mlir::Value memory, mlir::Value index, bool inParallelLoop);

  mlir::Value number(int64_t value);
  mlir::Value sum(mlir::Value a, mlir::Value b);
  mlir::Value difference(mlir::Value a, mlir::Value b);
  mlir::Value product(mlir::Value a, int64_t b);
  mlir::Value quotient(mlir::Value a, int64_t b);  // of non-negative numbers
  mlir::Value remainder(mlir::Value a, int64_t b); // of non-negative numbers
  mlir::Value minimum(mlir::Value a, mlir::Value b);

private:
  struct Loop {
    mlir::Block *header, *exit;
    mlir::Value index;
    mlir::LLVM::LoopAnnotationAttr annotation;
  };
  mlir::Type typeInMemory(mlir::Type element) const;
  mlir::Value address(mlir::OpBuilder &at, mlir::Value memory, mlir::Type element, mlir::Value index);

  mlir::Location loc;
  mlir::OpBuilder builder, entryBuilder;
  mlir::LLVM::LLVMFuncOp function;
  mlir::LLVM::AccessGroupAttr accesses;
  mlir::LLVM::LoopAnnotationAttr parallelLoop, fewVectorsLoop, orderedLoop;
  llvm::SmallVector<Loop> loops;
  llvm::DenseMap<int64_t, mlir::Value> buffers;
};

} // namespace cleave::codegen
