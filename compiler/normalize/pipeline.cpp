#include "compiler/normalize/normalize.h"

using namespace mlir;
namespace cleave::normalize {

void buildNormalizePipeline(OpPassManager &passes, const NormalizeOptions &options) {
  BindDimensionsOptions sizes;
  for (const auto &[name, size] : options.dims) sizes.dims.push_back(name + ":" + std::to_string(size));
  passes.addPass(createCheckNodes());
  passes.addPass(createBindDimensions(std::move(sizes)));
  passes.addPass(createNormalizeNodes({options.batchNorm, options.dropout.value_or(-1)}));
  passes.addPass(createEraseDeadCode()); // shape arithmetic that folded away
  passes.addPass(createResizeBatch({options.fixedBatch.exported, options.fixedBatch.samples}));
  passes.addPass(createEraseDeadCode());
  passes.addPass(createPushReshapes());
  passes.addPass(createSimplifyCore()); // what the pushes have made trivial
  passes.addPass(createAbsorbTransposes());
  passes.addPass(createEraseDeadCode());
  passes.addPass(createStackExperts());
  passes.addPass(createEraseDeadCode());
  passes.addPass(createVerifyCore());
}

} // namespace cleave::normalize
