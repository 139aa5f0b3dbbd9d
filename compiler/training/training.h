// The training phase: from the forward graph to the whole training step, still on one device.
//
//   in    func @model(inputs) -> (outputs)            core ops; parameters by onnx.read
//   out   func @final(inputs, labels, host scalars) -> (loss, grad_norm)     forward, backward, update; in fp16 also
//                                                      (..., loss_scale, skipped)
//         func @accumulate(inputs, labels)            microbatches > 1: runs microbatches - 1 times before @final
//         func @count(inputs, labels)                 microbatches > 1, some losses: runs for each of them before all
//         func @evaluate(inputs, labels) -> (loss)    forward and loss only
//
// Between passes a value's meaning is in the function's result attributes: `onnx.name` "loss_sum", "loss_weight"
// (absent when the loss is a plain sum), "loss", "loss.NAME" of several losses, "grad_norm"; `onnx.gradient_of`. The
// mean of a batch is sum / weight, where the weight counts labels that are not ignored: unequal microbatches are
// weighted as one batch would be.
//
// Markers for @evaluate come from the normalize phase: `onnx.dropout`, `onnx.batch_statistic` (normalize.h).
#pragma once
#include "compiler/training/recipe_option.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include <functional>

namespace cleave::training {

struct TrainingOptions {
  int64_t microbatches = 1;             // the module is built at the size of one microbatch
  std::vector<double> lossOfBatch = {}; // of several: onnx.loss_terms, as one microbatch has it
  bool delayWeights = false;            // two versions of the weights: see DelayWeights
  bool pipeline = false; // to be cut in stages: gradients are accumulated even of one microbatch, ops know their origin
  // Passes over the forward graph with its loss and labels, before the backward pass is built.
  std::function<void(mlir::OpPassManager &)> onForward = {};
};

void buildTrainingPipeline(mlir::OpPassManager &passes, const recipe::Recipe &recipe, const TrainingOptions &options);

// Registers `--training="recipe={...} microbatches=4"`, the whole phase.
void registerTrainingPipeline();

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/training/Passes.h.inc"

} // namespace cleave::training
