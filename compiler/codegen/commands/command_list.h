// One fragment's commands in list order, where each value lives, and until when a command may touch its buffers.
//
//   position 1  %g = plan.launch ...                      compute; record 1
//   position 2  %r = plan.collective %g  stream 1, wait 1, record 2
//   position 3  %h = plan.launch ...                      compute: runs beside position 2
//   position 4  %u = plan.launch @sgd(%p, %r)  wait 2     from here on %g and %r are compute's again
//
// Who waits for a command has waited for what that command waited for, on other streams too.
// busyUntil(collective) is 4: until then neither its operands nor its results may be overwritten. A collective starts
// after the compute command just before it in the list (ScheduleCommands sees to that), so its results are busy from
// its own position on.
#pragma once
#include "dialects/place/Place.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace cleave::codegen {

// A value's place: `offset` bytes into the buffer of `root`, which is a command's result, an onnx.read or an argument.
struct BufferView {
  mlir::Value root;
  int64_t offset = 0;
};
BufferView bufferViewOf(mlir::Value value); // through plan.view

class CommandList {
public:
  explicit CommandList(mlir::func::FuncOp function);

  // Positions count from 1 in list order (arguments: 0); end() is past the last.
  int64_t position(mlir::Operation *op) const { return positions.lookup(op); }
  int64_t position(mlir::Value root) const;
  int64_t end() const { return last + 1; }
  int64_t busyUntil(mlir::Operation *op) const;
  // The last position at which someone may read or write the root's buffer, through any view of it.
  int64_t lastUse(mlir::Value root) const { return lastUses.lookup(root); }
  const llvm::SmallVector<mlir::Value> &rootsInOrder() const { return roots; }
  const llvm::SmallVector<mlir::OpOperand *, 4> &usesOf(mlir::Value root) const;

private:
  llvm::DenseMap<mlir::Operation *, int64_t> positions;
  llvm::DenseMap<mlir::Operation *, int64_t> asyncEnds; // of commands on other streams
  llvm::DenseMap<mlir::Value, int64_t> lastUses;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::OpOperand *, 4>> uses; // of a root, through views
  llvm::SmallVector<mlir::Value> roots;
  int64_t last = 0;
};

// Whether the module's `plan.offload` has it: "optimizer", "activations".
bool offloads(mlir::ModuleOp module, llvm::StringRef what);
// Copies from the host's memory ("fetch") and to it ("evict").
mlir::Value addHostCopy(mlir::OpBuilder &builder, mlir::Value value, llvm::StringRef link, place::Phase phase);
bool isFetch(mlir::Operation *op);
bool isEvict(mlir::Operation *op);

// The first of these in the backward pass is where it begins: kernels prepare for it before.
bool isProduct(mlir::Operation *op);

// The stream of a command: 0 compute.
int64_t streamOf(mlir::Operation *op);

} // namespace cleave::codegen
