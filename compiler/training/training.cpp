#include "compiler/training/training.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

// The option parser takes the outer braces of a flow map away.
bool llvm::cl::parser<cleave::recipe::Recipe>::parse(Option &option, StringRef, StringRef text,
                                                     cleave::recipe::Recipe &recipe) {
  const bool isWhole = text.empty() || text.contains('\n') || (text.starts_with("{") && text.ends_with("}"));
  auto parsed = cleave::recipe::parseRecipeText(isWhole ? text.str() : ("{" + text + "}").str());
  if (!parsed) return option.error(parsed.status().message());
  recipe = std::move(*parsed);
  return false;
}

namespace cleave::training {

void buildTrainingPipeline(mlir::OpPassManager &passes, const recipe::Recipe &recipe, const TrainingOptions &options) {
  const bool isScaled = recipe.precision == recipe::Precision::Fp16;
  const bool isEight = recipe.precision == recipe::Precision::Fp8;
  passes.addPass(
      createAttachLoss({recipe, options.microbatches, {options.lossOfBatch.begin(), options.lossOfBatch.end()}}));
  passes.addPass(createNameOperations());
  if (options.onForward) options.onForward(passes);
  passes.addPass(createBuildEvaluate());
  passes.addPass(createBuildCount({options.microbatches}));
  if (isScaled) passes.addPass(createScaleLoss({recipe, options.microbatches, options.pipeline}));
  passes.addPass(createBuildBackward({options.microbatches, options.pipeline, /*numberProducts=*/isEight}));
  if (isEight) passes.addPass(createQuantizeProducts({recipe}));
  passes.addPass(createAccumulateGradients({options.microbatches, options.pipeline}));
  if (isEight) passes.addPass(createUpdateScales({recipe}));
  if (isScaled) passes.addPass(createUnscaleGradients());
  passes.addPass(createFreezeRows({recipe}));
  passes.addPass(createClipGradients({recipe}));
  passes.addPass(createApplyOptimizer({recipe}));
  passes.addPass(createAverageWeights({recipe}));
  if (isScaled || recipe.skipOutliers) passes.addPass(createSkipSteps({recipe}));
  if (options.delayWeights) passes.addPass(createDelayWeights());
  passes.addPass(createVerifyTraining());
}

namespace {

struct PipelineOptions : mlir::PassPipelineOptions<PipelineOptions> {
  Option<recipe::Recipe> recipe{*this, "recipe", llvm::cl::desc("the recipe, as YAML text")};
  Option<int64_t> microbatches{*this, "microbatches", llvm::cl::desc("microbatches of a step"), llvm::cl::init(1)};
  ListOption<double> lossOfBatch{*this, "loss-of-batch", llvm::cl::desc("onnx.loss_terms of the whole batch")};
  Option<bool> delayWeights{*this, "delay-weights", llvm::cl::desc("two versions of the weights")};
};

} // namespace

void registerTrainingPipeline() {
  mlir::PassPipelineRegistration<PipelineOptions>(
      "training", "the whole training phase", [](mlir::OpPassManager &passes, const PipelineOptions &options) {
        buildTrainingPipeline(passes, options.recipe,
                              {.microbatches = options.microbatches,
                               .lossOfBatch = {options.lossOfBatch.begin(), options.lossOfBatch.end()},
                               .delayWeights = options.delayWeights});
      });
}

} // namespace cleave::training
