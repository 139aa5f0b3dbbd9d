// Every pass of a compile in its order: these functions are the pipeline, and nothing else adds a pass of Cleave's.
// docs/reference/passes.md says what each pass does and prints three of the lists.
//
//   PassManager passes(context);
//   addNormalizePasses(passes, {.dims = {{"batch", 8}}});        any ONNX graph -> core ops of static shape
//   addTrainingPasses(passes, recipe, {.microbatches = 2});      the whole step on one device
//   addPartitionPasses(passes, {.decision = decision});          the step of every device
//   addCodegenPasses(passes, {});                                commands, memory
#pragma once
#include "compiler/attention/attention.h"
#include "compiler/codegen/codegen.h"
#include "compiler/layout/layout.h"
#include "compiler/normalize/normalize.h"
#include "compiler/padding/padding.h"
#include "compiler/planner/problem/decision.h"
#include "compiler/recipe/recipe.h"
#include "compiler/schedule/schedule.h"
#include "mlir/Pass/PassManager.h"

namespace cleave {

// For the command line of cleave-opt: every pass, and `--training="recipe={...} microbatches=4"`, the whole phase.
void registerPasses();

void addInitializePasses(mlir::OpPassManager &passes, const recipe::Recipe &recipe);

void addNormalizePasses(mlir::OpPassManager &passes, const normalize::NormalizeOptions &options);

struct TrainingOptions {
  int64_t microbatches = 1;                   // the module is built at the size of one microbatch
  std::vector<double> lossOfBatch = {};       // of several: onnx.loss_terms, as one microbatch has it
  bool emptyPlaces = false;                   // a batch may have fewer samples than places, which losses must ignore
  padding::PadDimensionsOptions padding = {}; // sizes that are made to divide over the devices
  bool delayWeights = false;                  // two versions of the weights: see DelayWeights
  bool pipeline = false; // to be cut in stages: gradients are accumulated even of one microbatch, ops know their origin
  int64_t sequenceBlocks = 1;  // attention over a sequence in so many blocks
  bool balanceSequence = true; // blocks of a causal attention in pairs of equal work
  std::optional<attention::RaiseAttentionOptions> raiseAttention = {}; // attention as one operation
};
void addTrainingPasses(mlir::OpPassManager &passes, const recipe::Recipe &recipe, const TrainingOptions &options);

// `element`: recipe::lowElement, such as "bf16".
void addPrecisionPasses(mlir::OpPassManager &passes, llvm::StringRef element);

struct PartitionOptions {
  const planner::Decision &decision;
  bool ofAnotherSize = false; // the decision was made for a step of another length, or of another stage of a ramp
  std::optional<planner::PipelineSchedule> table = {};   // of a pipeline: makeSchedule of the decision's kind
  std::optional<layout::Convolutions> convolutions = {}; // which have their channels last
  bool weightsChannelsLast = false;
};
void addPartitionPasses(mlir::OpPassManager &passes, const PartitionOptions &options);

void addCodegenPasses(mlir::OpPassManager &passes, const codegen::CodegenOptions &options);

// The plan of a partitioned module: the passes of code generation, and codegen::emit. The module then holds the commands.
mlir::FailureOr<plan::Plan> generate(mlir::ModuleOp module, const dist::Mesh &mesh,
                                     const codegen::CodegenOptions &options);

} // namespace cleave
