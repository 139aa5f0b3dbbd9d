#include "compiler/codegen/kernels/passes.h"
#include "compiler/codegen/cuda/cuda_kernels.h"

namespace cleave::codegen {
void registerKernelPasses() {
  mlir::registerPass(createPullFactorsPass);
  mlir::registerPass([] { return createSplitReductionsPass(); });
  mlir::registerPass(createSplitSumsPass);
  mlir::registerPass(createRematerializeCheapPass);
  mlir::registerPass(createSelectHalvesPass);
  mlir::registerPass(createFormClustersPass);
  mlir::registerPass(createRecordOperationsPass);
  mlir::registerPass(createLowerKernelsToLinalgPass);
  mlir::registerPass([] { return createScheduleKernelsPass(); });
  mlir::registerPass(createLowerKernelsToGpuPass);
}
} // namespace cleave::codegen
