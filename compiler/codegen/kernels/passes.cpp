#include "compiler/codegen/kernels/passes.h"

namespace cleave::codegen {
void registerKernelPasses() {
  mlir::registerPass(createSplitReductionsPass);
  mlir::registerPass(createRematerializeCheapPass);
  mlir::registerPass(createFormClustersPass);
  mlir::registerPass(createLowerKernelsToLinalgPass);
  mlir::registerPass(createScheduleKernelsPass);
}
} // namespace cleave::codegen
