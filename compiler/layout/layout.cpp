#include "compiler/layout/layout.h"
#include "mlir/Pass/PassManager.h"

namespace cleave::layout {

void buildLayoutPipeline(mlir::OpPassManager &manager, Convolutions which, bool weights) {
  manager.addPass(createChooseChannelsLast({which}));
  manager.addPass(createPlaceChannelsLast({weights}));
  manager.addPass(createElideTransposes());
}

} // namespace cleave::layout
