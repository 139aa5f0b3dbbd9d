// Builds one kernel in linalg form as a gpu.func, after its GridSchedule:
//
//   Flat     load, compute and store `width` neighbouring elements
//   Rows     each thread of the team walks over its chunks of the row, phase by phase; a reduction is finished by
//            shuffles within each warp and, of teams larger than a warp, through shared memory
//   Columns  each thread walks over its rows of `width` columns; the team's sums meet in shared memory
//
// All threads of a team then have the result of a reduction, in the same bits: sums are made in one order, whatever the
// GPU does. Threads beyond the last row or column do the work of the last one again and store nothing.
#pragma once
#include "compiler/codegen/cuda/grid_schedule.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace cleave::codegen {

// `alignment`: of every buffer in every launch, bytes; inputs, then results. `groupSteps`: as a GridBuilder has it.
void buildGridKernel(plan::KernelOp kernel, const KernelSchedule &schedule, const GridSchedule &grid,
                     llvm::ArrayRef<int64_t> alignment, mlir::gpu::GPUModuleOp module, llvm::StringRef symbol,
                     std::optional<int64_t> groupSteps = {});

} // namespace cleave::codegen
