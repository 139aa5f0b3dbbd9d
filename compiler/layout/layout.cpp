#include "compiler/layout/layout.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

namespace cleave::layout {

void buildLayoutPipeline(mlir::OpPassManager &manager, Convolutions which, bool weights) {
  manager.addPass(createChooseChannelsLast(which));
  manager.addPass(createPlaceChannelsLast(weights));
  manager.addPass(createElideTransposes());
}

void registerLayoutPasses() {
  mlir::registerPass([] { return createChooseChannelsLast(Convolutions::Low); });
  mlir::registerPass([] { return createPlaceChannelsLast(true); });
  mlir::registerPass([] { return createElideTransposes(); });
}

} // namespace cleave::layout
