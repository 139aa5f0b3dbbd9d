#include "compiler/codegen/codegen.h"
#include "compiler/codegen/kernels/passes.h"

namespace cleave::codegen {

void registerCodegenPasses() {
  registerKernelPasses();
  mlir::registerPass(createJoinParts);
  mlir::registerPass(createFlattenGathers);
  mlir::registerPass(createAddInPlace);
  mlir::registerPass(createAbsorbContractTransposes);
  mlir::registerPass(createLayEightBitProducts);
  mlir::registerPass(createFoldEpilogues);
  mlir::registerPass(createLowerLibraryOps);
  mlir::registerPass(createLowerCollectives);
  mlir::registerPass(createCopyKeptValues);
  mlir::registerPass(createOffloadState);
  mlir::registerPass(createOffloadActivations);
  mlir::registerPass([] { return createScheduleCommands(); });
  mlir::registerPass(createPlanMemory);
  mlir::registerPass(createVerifyPlan);
}

} // namespace cleave::codegen
