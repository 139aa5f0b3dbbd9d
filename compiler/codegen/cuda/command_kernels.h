// Kernels for the commands of a GPU's plan that no library does: copies, fills, gathers and their gradients, pooling,
// cumulative sums, checks for finite values. Each command keeps its own message, for the checks and the reports, and
// gets the launches that do it (Command.launches).
//
//   copy 768x50257 by strides (1, 768) -> (50257, 1)     kernel copy_3: one thread for each element or four
//   scatter_add of 8192 rows                             launches: fill with zeros, sort, merge, sum, join
//   (scatter_code.h)
//
// Sizes and strides are constants of the kernels, so that no thread divides by a variable; equal commands share one.
// Sums are made in one order: a gradient of an embedding has the same bits in every run.
#pragma once
#include "compiler/codegen/cuda/cuda_kernels.h"
#include "plan/plan.pb.h"

namespace cleave::codegen {

// Appends the kernels to `kernels` and to plan.kernels, and the launches to the plan's commands.
// Sets fault_offset of every program: 4 bytes at the end of its arena; then comes scratch of scatter_adds.
mlir::LogicalResult addCommandKernels(plan::Plan &plan, GpuKernels &kernels);

} // namespace cleave::codegen
