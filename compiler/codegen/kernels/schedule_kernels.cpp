#include "compiler/codegen/cuda/grid_schedule.h"
#include "compiler/codegen/passes.h"

using namespace mlir;
namespace cleave::codegen {
#define GEN_PASS_DEF_SCHEDULEKERNELS
#include "compiler/codegen/Passes.h.inc"

namespace {

int64_t mostElements(plan::LaunchOp launch) {
  int64_t most = 1;
  for (Type type : llvm::concat<const Type>(launch.getInputs().getTypes(), launch.getResults().getTypes()))
    most = std::max(most, cast<RankedTensorType>(type).getNumElements());
  return most;
}

struct ScheduleKernels : impl::ScheduleKernelsBase<ScheduleKernels> {
  using Base::Base;
  void runOnOperation() override {
    struct Range {
      int64_t extent, grain;
      SmallVector<int64_t> inplace;
    };
    DenseMap<StringAttr, Range> ranges;
    DenseSet<StringAttr> flat; // kernels that serve any number of elements
    for (auto kernel : getOperation().getOps<plan::KernelOp>()) {
      FailureOr<KernelSchedule> schedule = KernelSchedule::of(kernel);
      if (failed(schedule)) return signalPassFailure();
      if (kernel.getFlat()) flat.insert(kernel.getSymNameAttr());
      Range range{schedule->extent, schedule->grain, schedule->inplace};
      if (gpu) {
        GridSchedule grid = GridSchedule::of(kernel, *schedule);
        range = {grid.extent, grid.grain, grid.inplace};
      }
      ranges.try_emplace(kernel.getSymNameAttr(), std::move(range));
    }
    getOperation().walk([&](plan::LaunchOp launch) {
      auto found = ranges.find(launch.getKernelAttr().getAttr());
      if (found == ranges.end()) return; // the launch's own verifier reports it
      const Range &range = found->second;
      launch.setExtent(flat.contains(found->first) ? mostElements(launch) : range.extent);
      launch.setGrain(range.grain);
      launch.setInplace(range.inplace);
    });
  }
};

} // namespace

} // namespace cleave::codegen
