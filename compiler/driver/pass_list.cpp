#include "compiler/driver/pass_list.h"
#include "compiler/codegen/passes.h"
#include "compiler/partition/passes.h"
#include "compiler/training/training.h"
#include "dialects/pass_manager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

namespace cleave {
using namespace mlir;

// Upstream's canonicalizer, with the folders and patterns of dialects/onnx/canonicalize.cpp. Neither are constants merged
// nor is -cse run: a value that far users share is kept from one to the other, where each would have made its own (the
// predicted step of lstm_tiny is then 14 % longer, that of resnet_cifar 0.1 % shorter).
static void addCanonicalize(OpPassManager &passes) {
  passes.addPass(createCanonicalizerPass(GreedyRewriteConfig().enableConstantCSE(false).setRegionSimplificationLevel(
      GreedySimplifyRegionLevel::Disabled)));
}

void addInitializePasses(OpPassManager &passes, const recipe::Recipe &recipe) {
  passes.addPass(training::createInitializeParameters({recipe}));
  passes.addPass(training::createAddAdapters({recipe}));
}

void addNormalizePasses(OpPassManager &passes, const normalize::NormalizeOptions &options) {
  normalize::BindDimensionsOptions sizes;
  for (const auto &[name, size] : options.dims) sizes.dims.push_back(name + ":" + std::to_string(size));
  passes.addPass(normalize::createCheckNodes());
  passes.addPass(normalize::createBindDimensions(std::move(sizes)));
  passes.addPass(normalize::createNormalizeNodes({options.batchNorm, options.dropout.value_or(-1)}));
  addCanonicalize(passes); // without shape arithmetic that folded away
  passes.addPass(normalize::createRecognizeDropout({options.dropout.value_or(-1)}));
  addCanonicalize(passes);
  passes.addPass(normalize::createResizeBatch({options.fixedBatch.exported, options.fixedBatch.samples}));
  addCanonicalize(passes);
  passes.addPass(normalize::createPushReshapes());
  addCanonicalize(passes); // what the pushes have made trivial
  passes.addPass(normalize::createFoldConstants());
  passes.addPass(codegen::createAbsorbContractTransposes());
  passes.addPass(normalize::createStackExperts());
  addCanonicalize(passes);
  passes.addPass(normalize::createChooseExperts());
  addCanonicalize(passes);
  passes.addPass(normalize::createRaiseGroupedProducts());
  passes.addPass(normalize::createVerifyCore());
}

void addTrainingPasses(OpPassManager &passes, const recipe::Recipe &recipe, const TrainingOptions &options) {
  const bool isScaled = recipe.precision == recipe::Precision::Fp16;
  const bool isEight = recipe.precision == recipe::Precision::Fp8;
  passes.addPass(training::createAttachLoss(
      {recipe, options.microbatches, {options.lossOfBatch.begin(), options.lossOfBatch.end()}, options.emptyPlaces}));
  if (options.padding.multiple > 1 || options.padding.multipleOfInputs > 1)
    passes.addPass(padding::createPadDimensions(options.padding));
  passes.addPass(training::createNameOperations());
  if (options.raiseAttention) passes.addPass(attention::createRaiseAttention(*options.raiseAttention));
  if (options.sequenceBlocks > 1) {
    passes.addPass(attention::createRecognizeAttention({options.sequenceBlocks}));
    if (options.balanceSequence) passes.addPass(attention::createBalanceSequence({options.sequenceBlocks}));
  }
  passes.addPass(attention::createGuardEmptyRows());
  passes.addPass(training::createBuildEvaluate());
  passes.addPass(training::createBuildCount({options.microbatches}));
  if (isScaled) passes.addPass(training::createScaleLoss({recipe, options.microbatches, options.pipeline}));
  passes.addPass(training::createBuildBackward({options.microbatches, options.pipeline, /*numberProducts=*/isEight}));
  if (isEight) passes.addPass(training::createQuantizeProducts({recipe}));
  passes.addPass(training::createAccumulateGradients({options.microbatches, options.pipeline}));
  if (isEight) passes.addPass(training::createUpdateScales({recipe}));
  if (isScaled) passes.addPass(training::createUnscaleGradients());
  passes.addPass(training::createFreezeRows({recipe}));
  passes.addPass(training::createClipGradients({recipe}));
  passes.addPass(training::createApplyOptimizer({recipe}));
  passes.addPass(training::createAverageWeights({recipe}));
  if (isScaled || recipe.skipOutliers) passes.addPass(training::createSkipSteps({recipe}));
  if (options.delayWeights) passes.addPass(training::createDelayWeights());
  passes.addPass(training::createVerifyTraining());
  if (options.sequenceBlocks > 1) passes.addPass(attention::createExpandAttention({options.sequenceBlocks}));
}

void addPrecisionPasses(OpPassManager &passes, StringRef element) {
  passes.addPass(training::createLowerPrecision({element.str()}));
}

void addPartitionPasses(OpPassManager &passes, const PartitionOptions &options) {
  const planner::Decision &decision = options.decision;
  const auto &table = options.table;
  passes.addPass(partition::createApplyDecision(decision, options.ofAnotherSize));
  if (table) passes.addPass(partition::createAssignStages({{table->rankOfStage.begin(), table->rankOfStage.end()}}));
  passes.addPass(partition::createRecompute({decision.exceptLast}));
  passes.addPass(partition::createPropagateShardings());
  passes.addPass(partition::createMaterializeCollectives());
  passes.addPass(partition::createElideCollectives());
  if (decision.chunks > 1) passes.addPass(partition::createChunkProducts({decision.chunks}));
  if (options.convolutions) {
    passes.addPass(layout::createChooseChannelsLast({*options.convolutions}));
    passes.addPass(layout::createPlaceChannelsLast({options.weightsChannelsLast}));
    passes.addPass(layout::createElideTransposes());
  }
  if (table) {
    // A stage keeps no more for its backward pass than a step that is one function does.
    passes.addPass(codegen::createAbsorbContractTransposes());
    passes.addPass(codegen::createRematerializeCheap());
    passes.addPass(partition::createSplitStages(*table));
  }
  passes.addPass(partition::createBucketCollectives());
  passes.addPass(partition::createBuildRoutines(decision.microbatches, table));
  passes.addPass(partition::createVerifyPartition());
}

void addCodegenPasses(OpPassManager &passes, const codegen::CodegenOptions &options) {
  const bool isGpu = !options.gpu.empty();
  passes.addPass(codegen::createFlattenGathers());
  passes.addPass(codegen::createJoinParts());
  passes.addPass(codegen::createAbsorbContractTransposes());
  if (isGpu) passes.addPass(codegen::createLayEightBitProducts());
  if (isGpu && options.foldEpilogues) passes.addPass(codegen::createFoldEpilogues());
  passes.addPass(codegen::createPullFactors());
  passes.addPass(codegen::createSplitReductions({isGpu}));
  passes.addPass(codegen::createSplitSums());
  passes.addPass(codegen::createRematerializeCheap());
  passes.addPass(codegen::createSelectHalves());
  passes.addPass(codegen::createAddInPlace());
  passes.addPass(codegen::createFormClusters());
  passes.addPass(codegen::createRecordOperations());
  passes.addPass(codegen::createLowerKernelsToLinalg());
  passes.addPass(codegen::createScheduleKernels({isGpu}));
  passes.addPass(codegen::createLowerLibraryOps());
  passes.addPass(codegen::createLowerCollectives());
  passes.addPass(codegen::createCopyKeptValues());
  passes.addPass(codegen::createOffloadState());
  passes.addPass(codegen::createOffloadActivations());
  passes.addPass(codegen::createScheduleCommands({isGpu}));
  passes.addPass(codegen::createPlanMemory());
  passes.addPass(codegen::createVerifyPlan());
}

FailureOr<plan::Plan> generate(ModuleOp module, const dist::Mesh &mesh, const codegen::CodegenOptions &options) {
  codegen::prepare(module, mesh, options);
  PassManager passes(module.getContext());
  if (failed(configure(passes))) return failure();
  addCodegenPasses(passes, options);
  if (failed(passes.run(module))) return failure();
  return codegen::emit(module, mesh, options);
}

namespace {

struct WholeTraining : PassPipelineOptions<WholeTraining> {
  Option<recipe::Recipe> recipe{*this, "recipe", llvm::cl::desc("the recipe, as YAML text")};
  Option<int64_t> microbatches{*this, "microbatches", llvm::cl::desc("microbatches of a step"), llvm::cl::init(1)};
  ListOption<double> lossOfBatch{*this, "loss-of-batch", llvm::cl::desc("onnx.loss_terms of the whole batch")};
  Option<bool> delayWeights{*this, "delay-weights", llvm::cl::desc("two versions of the weights")};
};

} // namespace

void registerPasses() {
  normalize::registerNormalizePasses();
  training::registerTrainingPasses();
  padding::registerPaddingPasses();
  attention::registerAttentionPasses();
  partition::registerPartitionPasses();
  layout::registerLayoutPasses();
  codegen::registerCodegenPasses();
  PassPipelineRegistration<WholeTraining>(
      "training", "the whole training phase", [](OpPassManager &passes, const WholeTraining &options) {
        addTrainingPasses(passes, options.recipe,
                          {.microbatches = options.microbatches,
                           .lossOfBatch = {options.lossOfBatch.begin(), options.lossOfBatch.end()},
                           .delayWeights = options.delayWeights});
      });
}

} // namespace cleave
