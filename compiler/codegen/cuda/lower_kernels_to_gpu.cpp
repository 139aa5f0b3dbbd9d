#include "compiler/codegen/cuda/cuda_kernels.h"
#include "compiler/codegen/cuda/grid_kernel.h"
#include "compiler/codegen/memory/memory_plan.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;
namespace cleave::codegen {
#define GEN_PASS_DEF_LOWERKERNELSTOGPU
#include "compiler/codegen/Passes.h.inc"

GpuKernels::GpuKernels(ModuleOp module, BufferAlignments alignments, StringRef target)
    : module(module), alignments(std::move(alignments)), sharedLimit(sharedOfBlock(target)),
      tensorCores(std::atoi(target.drop_front(3).str().c_str()) >= 80) {
  DialectRegistry registry;
  registerCudaDialects(registry);
  module.getContext()->appendDialectRegistry(registry);
}

LogicalResult GpuKernels::build(ModuleOp target) {
  if (!target) {
    module.getContext()->loadAllAvailableDialects();
    own = ModuleOp::create(module.getLoc());
    target = *own;
  }
  OpBuilder builder(target.getContext());
  builder.setInsertionPointToEnd(target.getBody());
  gpu = gpu::GPUModuleOp::create(builder, module.getLoc(), "kernels");
  for (auto kernel : module.getOps<plan::KernelOp>())
    if (failed(buildOne(kernel, kernel.getSymName(), std::nullopt))) return failure();
  return success();
}

LogicalResult GpuKernels::buildGroup(int64_t number, StringRef symbol, int64_t steps) {
  return buildOne(*std::next(module.getOps<plan::KernelOp>().begin(), number), symbol, steps);
}

LogicalResult GpuKernels::buildOne(plan::KernelOp kernel, StringRef symbol, std::optional<int64_t> groupSteps) {
  FailureOr<KernelSchedule> schedule = KernelSchedule::of(kernel);
  if (failed(schedule)) return failure();
  GridSchedule grid = GridSchedule::of(kernel, *schedule, sharedLimit);
  SmallVector<int64_t> alignment(kernel.getTensorArguments().size() + kernel.getYield().getValues().size(),
                                 bufferAlignment);
  if (auto known = alignments.find(kernel.getSymName()); known != alignments.end()) alignment = known->second;
  buildGridKernel(kernel, *schedule, grid, alignment, gpu, symbol, groupSteps);
  add({.symbol = symbol.str(),
       .grain = groupSteps ? 1 : grid.grain, // a group's extent are its blocks
       .threads = grid.threads,
       .sharedBytes = grid.sharedBytes,
       .buffers = groupSteps ? 2 : static_cast<int64_t>(alignment.size())});
  return success();
}

namespace {
struct LowerKernelsToGpu : impl::LowerKernelsToGpuBase<LowerKernelsToGpu> {
  void runOnOperation() override {
    if (failed(GpuKernels(getOperation()).build(getOperation()))) signalPassFailure();
  }
};
} // namespace
} // namespace cleave::codegen
