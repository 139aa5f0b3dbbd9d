// The training phase: from the forward graph to the whole training step, still on one device.
//
//   in    func @model(inputs) -> (outputs)            core ops; parameters by onnx.read
//   out   func @final(inputs, labels, host scalars) -> (loss, grad_norm)     forward, backward, update; in fp16 also
//                                                      (..., loss_scale, skipped)
//         func @accumulate(inputs, labels)            microbatches > 1: runs microbatches - 1 times before @final
//         func @count(inputs, labels)                 microbatches > 1, some losses: runs for each of them before all
//         func @evaluate(inputs, labels) -> (loss)    forward and loss only
//
// Passes in order (each has a file of its name):
//   AttachLoss           @model's results become loss_sum and loss_weight; labels become an argument
//   NameOperations       forward operations get the names that a decision knows (node_names.h)
//   BuildEvaluate        clones @model to @evaluate: running statistics instead of the batch's, no dropout, no writes
//   BuildCount           what the loss counts of the whole batch becomes @count
//   BuildBackward        appends the gradients of all trained parameters, as results with `onnx.gradient_of = @param`
//   AccumulateGradients  @model becomes @accumulate and @final; gradients and loss are those of the whole batch
//   FreezeRows           rows that the recipe freezes have no gradient
//   ClipGradients        computes grad_norm, scales the gradients
//   ApplyOptimizer       writes parameters and optimizer state
//   AverageWeights       (with `ema`) keeps a moving average of the parameters, which @evaluate reads
//   DelayWeights         (option) gradients are taken at the weights before the last update
//   VerifyTraining       checks what the later phases rely on
// With precision fp16 also ScaleLoss before BuildBackward, UnscaleGradients before ClipGradients, SkipSteps after
// ApplyOptimizer: a loss scale that adapts, and steps that are skipped when gradients overflow. With `skip_outliers`
// SkipSteps stands there in any precision.
// With precision fp8 also QuantizeProducts after BuildBackward and UpdateScales after AccumulateGradients: products of
// weights on 8 bits, with scales that follow the tensors.
// and, after the attention of a ring is written out (compiler/attention), of a step in bf16, fp16 or fp8:
//   LowerPrecision       products on 16-bit elements, master weights
//
// Between passes a value's meaning is in the function's result attributes: `onnx.name` "loss_sum", "loss_weight"
// (absent when the loss is a plain sum), "loss", "loss.NAME" of several losses, "grad_norm"; `onnx.gradient_of`. The
// mean of a batch is sum / weight, where the weight counts labels that are not ignored: unequal microbatches are
// weighted as one batch would be.
//
// Markers for @evaluate come from the normalize phase: `onnx.dropout`, `onnx.batch_statistic` (normalize.h).
#pragma once
#include "compiler/recipe/recipe.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include <functional>

namespace cleave::training {

struct TrainingOptions {
  int64_t microbatches = 1;             // the module is built at the size of one microbatch
  std::vector<double> lossOfBatch = {}; // of several: onnx.loss_terms, as one microbatch has it
  bool delayWeights = false;            // two versions of the weights: see DelayWeights
  bool pipeline = false; // to be cut in stages: gradients are accumulated even of one microbatch, ops know their origin
  bool numberProducts = false; // a product and those of its gradient: place.product
  // Passes over the forward graph with its loss and labels, before the backward pass is built.
  std::function<void(mlir::OpPassManager &)> onForward = {};
};

void buildTrainingPipeline(mlir::OpPassManager &passes, const recipe::Recipe &recipe, const TrainingOptions &options);

// Before the normalize phase, on the imported module: the recipe's `init` and `lora`.
std::unique_ptr<mlir::Pass> createInitializeParameters(const recipe::Recipe &recipe);
std::unique_ptr<mlir::Pass> createAddAdapters(const recipe::Recipe &recipe);

std::unique_ptr<mlir::Pass> createAttachLoss(const recipe::Recipe &recipe, const TrainingOptions &options = {});
std::unique_ptr<mlir::Pass> createNameOperations();
std::unique_ptr<mlir::Pass> createBuildEvaluate();
std::unique_ptr<mlir::Pass> createBuildCount(const TrainingOptions &options);
std::unique_ptr<mlir::Pass> createBuildBackward(const TrainingOptions &options);
std::unique_ptr<mlir::Pass> createAccumulateGradients(const TrainingOptions &options);
std::unique_ptr<mlir::Pass> createFreezeRows(const recipe::Recipe &recipe);
std::unique_ptr<mlir::Pass> createClipGradients(const recipe::Recipe &recipe);
std::unique_ptr<mlir::Pass> createApplyOptimizer(const recipe::Recipe &recipe);
std::unique_ptr<mlir::Pass> createAverageWeights(const recipe::Recipe &recipe);
std::unique_ptr<mlir::Pass> createQuantizeProducts(const recipe::Recipe &recipe);
std::unique_ptr<mlir::Pass> createUpdateScales(const recipe::Recipe &recipe);
std::unique_ptr<mlir::Pass> createScaleLoss(const recipe::Recipe &recipe, const TrainingOptions &options);
std::unique_ptr<mlir::Pass> createUnscaleGradients();
std::unique_ptr<mlir::Pass> createSkipSteps(const recipe::Recipe &recipe);
std::unique_ptr<mlir::Pass> createDelayWeights();
std::unique_ptr<mlir::Pass> createVerifyTraining();
// `element`: bf16 or f16.
std::unique_ptr<mlir::Pass> createLowerPrecision(llvm::StringRef element);

// For cleave-opt. Passes that follow the recipe take it as YAML text:
//   --attach-loss="recipe={loss: {kind: mse}}"    --build-backward="microbatches=4"
// and `--training="recipe={...} microbatches=4"` is the whole phase.
void registerTrainingPasses();

} // namespace cleave::training
