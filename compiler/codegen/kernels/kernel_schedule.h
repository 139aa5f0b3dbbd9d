// How a kernel in linalg form is run: which factor is the vector loop, what the parallel range counts, in which phase
// each reduction is done. Made once a kernel; ScheduleKernels writes its numbers on the launches, and kernel_loops.h
// builds the loops from it.
//
//   softmax of 1024 rows of 64     Rows: range over 1024 rows; phase 0 max, phase 1 sum of exp, phase 2 divide and
//   store sum of 1024 rows of 512  Columns: range over the columns; inside, rows then at most 512 columns
//   x * y of 100000 elements       Flat: range over the elements themselves
#pragma once
#include "compiler/codegen/clusters/kernel_domain.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace cleave::codegen {

// One linalg.generic of the kernel.
struct KernelNode {
  enum Kind { Load, Compute, Reduce, Store } kind = Compute;
  mlir::linalg::GenericOp op;
  llvm::SmallVector<int64_t> loops; // the factor of each loop
  FactorSet set = 0;                // the loops as a set; of a Reduce: those of its result
  llvm::SmallVector<int> producers; // node of each input (not of a Load)
  int buffer = -1;                  // Load: which input; Store: which result
  LinearForm form;                  // Load, Store: where in the buffer
  int level = 0;                    // reductions that must be finished before it; of a Reduce: its phase
  bool isCostly = false;            // worth keeping rather than computing twice
};

struct KernelSchedule {
  enum Shape { Flat, Rows, Columns };
  Shape shape = Flat;
  llvm::SmallVector<int64_t> sizes;
  FactorSet reduced = 0;
  llvm::SmallVector<KernelNode> nodes; // in order of definition
  int vector = -1;                     // the innermost factor; -1: there is none (all scalars)
  llvm::SmallVector<int64_t> outer;    // factors that the range counts, major first
  llvm::SmallVector<int64_t> inner;    // other factors than `vector` inside a row, major first
  int64_t tile = 0;                    // Columns: columns a tile
  int phases = 1;
  int64_t extent = 1, grain = 1;      // of the range
  bool rangeIsVector = false;         // Flat, one factor: the range counts elements
  bool rangeIsColumns = false;        // Columns without outer factors: the range counts columns
  llvm::SmallVector<int64_t> inplace; // pairs (input, result)

  // Elements that a Reduce or a full value has inside one row.
  int64_t rowElements() const;

  static llvm::FailureOr<KernelSchedule> of(cleave::plan::KernelOp kernel);
};

} // namespace cleave::codegen
