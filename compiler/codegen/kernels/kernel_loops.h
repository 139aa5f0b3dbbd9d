// Builds the loops of one kernel as an llvm.func of the kernel ABI, with arith and math ops inside the loops:
//
//   void symbol(int64_t begin, int64_t end, void *const *buffers, const int64_t *scalars)
//
// Rows: for each row of [begin, end): one pass over the row a phase; values that several phases need and that are
// costly are kept in a buffer of the row. Columns: for each tile of columns, the reduced factors outside, the columns
// inside, sums in an array of the tile. Flat: one pass. Values are computed in the outermost loop that has their
// factors.
#pragma once
#include "compiler/codegen/kernels/kernel_schedule.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace cleave::codegen {

// Adds the function to `module` under the kernel's name.
void buildKernelLoops(plan::KernelOp kernel, const KernelSchedule &schedule, mlir::ModuleOp module);

} // namespace cleave::codegen
