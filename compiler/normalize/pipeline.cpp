// The list of the normalize phase's passes.
#include "compiler/normalize/normalize.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
namespace cleave::normalize {

void buildNormalizePipeline(OpPassManager &passes, const NormalizeOptions &options) {
  passes.addPass(createCheckNodesPass());                    // attributes and operands are what ONNX says
  passes.addPass(createBindDimensionsPass(options));         // symbolic dimensions get their sizes
  passes.addPass(createNormalizeNodesPass(options));         // every node becomes core ops
  passes.addPass(createEraseDeadCodePass());                 // shape arithmetic that folded away
  passes.addPass(createResizeBatchPass(options.fixedBatch)); // another number of samples than it was exported for
  passes.addPass(createEraseDeadCodePass());
  passes.addPass(createPushReshapesPass());     // splits of a product's result become splits of its operands
  passes.addPass(createSimplifyCorePass());     // what the pushes have made trivial
  passes.addPass(createAbsorbTransposesPass()); // contractions read their operands where they lie
  passes.addPass(createEraseDeadCodePass());
  passes.addPass(createStackExpertsPass()); // experts that are modules of their own become one
  passes.addPass(createEraseDeadCodePass());
  passes.addPass(createVerifyCorePass()); // the border: core ops of static shape
}

void registerNormalizePasses() {
  registerPass([] { return createCheckNodesPass(); });
  registerPass([] { return createBindDimensionsPass(); });
  registerPass([] { return createNormalizeNodesPass(); });
  registerPass([] { return createResizeBatchPass(); });
  registerPass([] { return createFoldConstantsPass(); });
  registerPass([] { return createPushReshapesPass(); });
  registerPass([] { return createAbsorbTransposesPass(); });
  registerPass([] { return createStackExpertsPass(); });
  registerPass([] { return createSimplifyCorePass(); });
  registerPass([] { return createEraseDeadCodePass(); });
  registerPass([] { return createVerifyCorePass(); });
}

} // namespace cleave::normalize
