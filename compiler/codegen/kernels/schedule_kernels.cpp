// ScheduleKernels: writes on every launch what its kernel's schedule says: the range's extent and grain, and which
// inputs may share a buffer with a result.
#include "compiler/codegen/kernels/kernel_schedule.h"
#include "compiler/codegen/kernels/passes.h"

using namespace mlir;
namespace cleave::codegen {
namespace {

int64_t mostElements(plan::LaunchOp launch) {
  int64_t most = 1;
  for (Type type : llvm::concat<const Type>(launch.getInputs().getTypes(), launch.getResults().getTypes()))
    most = std::max(most, cast<RankedTensorType>(type).getNumElements());
  return most;
}

struct ScheduleKernels : PassWrapper<ScheduleKernels, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ScheduleKernels)
  StringRef getArgument() const override { return "schedule-kernels"; }
  StringRef getDescription() const override {
    return "Choose each kernel's loops; write extent, grain, inplace on launches";
  }
  void runOnOperation() override {
    DenseMap<StringAttr, KernelSchedule> schedules;
    DenseSet<StringAttr> flat; // kernels that serve any number of elements
    for (auto kernel : getOperation().getOps<plan::KernelOp>()) {
      FailureOr<KernelSchedule> schedule = KernelSchedule::of(kernel);
      if (failed(schedule)) return signalPassFailure();
      if (kernel.getFlat()) flat.insert(kernel.getSymNameAttr());
      schedules.try_emplace(kernel.getSymNameAttr(), std::move(*schedule));
    }
    getOperation().walk([&](plan::LaunchOp launch) {
      auto found = schedules.find(launch.getKernelAttr().getAttr());
      if (found == schedules.end()) return; // the launch's own verifier reports it
      const KernelSchedule &schedule = found->second;
      launch.setExtent(flat.contains(found->first) ? mostElements(launch) : schedule.extent);
      launch.setGrain(schedule.grain);
      launch.setInplace(schedule.inplace);
    });
  }
};

} // namespace

std::unique_ptr<Pass> createScheduleKernelsPass() { return std::make_unique<ScheduleKernels>(); }

} // namespace cleave::codegen
