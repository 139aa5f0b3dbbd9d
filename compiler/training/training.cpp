#include "compiler/training/training.h"
#include "compiler/training/recipe_pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

namespace cleave::training {

void buildTrainingPipeline(mlir::OpPassManager &passes, const recipe::Recipe &recipe, const TrainingOptions &options) {
  passes.addPass(createAttachLoss(recipe, options));
  passes.addPass(createNameOperations());
  if (options.onForward) options.onForward(passes);
  passes.addPass(createBuildEvaluate());
  passes.addPass(createBuildCount(options));
  bool scaled = recipe.precision == recipe::Precision::Fp16;
  if (scaled) passes.addPass(createScaleLoss(recipe, options));
  const bool isEight = recipe.precision == recipe::Precision::Fp8;
  TrainingOptions backward = options;
  backward.numberProducts = isEight;
  passes.addPass(createBuildBackward(backward));
  if (isEight) passes.addPass(createQuantizeProducts(recipe));
  passes.addPass(createAccumulateGradients(options));
  if (isEight) passes.addPass(createUpdateScales(recipe));
  if (scaled) passes.addPass(createUnscaleGradients());
  passes.addPass(createFreezeRows(recipe));
  passes.addPass(createClipGradients(recipe));
  passes.addPass(createApplyOptimizer(recipe));
  passes.addPass(createAverageWeights(recipe));
  if (scaled || recipe.skipOutliers) passes.addPass(createSkipSteps(recipe));
  if (options.delayWeights) passes.addPass(createDelayWeights());
  passes.addPass(createVerifyTraining());
}

// Each is defined beside its pass.
void registerInitializeParameters();
void registerAddAdapters();
void registerAttachLoss();
void registerNameOperations();
void registerBuildEvaluate();
void registerBuildCount();
void registerBuildBackward();
void registerAccumulateGradients();
void registerFreezeRows();
void registerClipGradients();
void registerApplyOptimizer();
void registerAverageWeights();
void registerDelayWeights();
void registerVerifyTraining();
void registerLowerPrecision();
void registerQuantizeProducts();
void registerUpdateScales();
void registerScaleLoss();
void registerUnscaleGradients();
void registerSkipSteps();

namespace {

struct PipelineOptions : mlir::PassPipelineOptions<PipelineOptions> {
  Option<std::string> recipe{*this, "recipe", llvm::cl::desc("the recipe, as YAML text")};
  Option<int64_t> microbatches{*this, "microbatches", llvm::cl::desc("microbatches of a step"), llvm::cl::init(1)};
  ListOption<double> lossOfBatch{*this, "loss-of-batch", llvm::cl::desc("onnx.loss_terms of the whole batch")};
};

} // namespace

void registerTrainingPasses() {
  registerInitializeParameters();
  registerAddAdapters();
  registerAttachLoss();
  registerNameOperations();
  registerBuildEvaluate();
  registerBuildCount();
  registerBuildBackward();
  registerAccumulateGradients();
  registerFreezeRows();
  registerClipGradients();
  registerApplyOptimizer();
  registerAverageWeights();
  registerDelayWeights();
  registerVerifyTraining();
  registerLowerPrecision();
  registerQuantizeProducts();
  registerUpdateScales();
  registerScaleLoss();
  registerUnscaleGradients();
  registerSkipSteps();
  mlir::PassPipelineRegistration<PipelineOptions>(
      "training", "the whole training phase", [](mlir::OpPassManager &passes, const PipelineOptions &options) {
        Result<recipe::Recipe> recipe = parseRecipeOption(options.recipe);
        if (!recipe) {
          llvm::errs() << recipe.status().message() << "\n";
          return;
        }
        buildTrainingPipeline(passes, *recipe,
                              {.microbatches = options.microbatches,
                               .lossOfBatch = {options.lossOfBatch.begin(), options.lossOfBatch.end()}});
      });
}

} // namespace cleave::training
