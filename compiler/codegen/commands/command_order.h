// The order of a list's commands: what ScheduleCommands and its parts ask of a command, and how they move some.
#pragma once
#include "compiler/codegen/commands/command_list.h"
#include "runtime/base/sharding/mesh.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"

namespace cleave::codegen {

bool isUpdate(mlir::Operation *op);
bool isCollective(mlir::Operation *op);    // runs on a stream of communication
bool isBetweenStages(mlir::Operation *op); // a collective over "pp"
bool isNoCommand(mlir::Operation *op);     // takes no time and no place in the order
// `mesh`: of GPUs, whose collectives have a stream an axis; null: of CPUs, where a stream is a thread.
int64_t streamFor(mlir::Operation *op, const dist::Mesh *mesh);
int64_t resultBytes(mlir::Operation *op);

using CommandOrder = llvm::SmallVector<mlir::Operation *>;
// After an operation, what is issued there. One that marks a place may have moved itself: its place in the old order
// counts.
using Early = llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Operation *>>;
void moveAhead(CommandOrder &order, const Early &early, const llvm::DenseSet<mlir::Operation *> &moved);

// By command: the offloads that it waits for, so that their memory can be reused from then on.
using OffloadWaits = llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Operation *, 1>>;
// Copies from and to the host's memory, in buckets of about equal bytes (order_host_copies.cpp). `isOfStage`: of a
// forward or backward pass of a pipeline's stage.
OffloadWaits orderHostCopies(CommandOrder &order, bool isOfStage);

} // namespace cleave::codegen
