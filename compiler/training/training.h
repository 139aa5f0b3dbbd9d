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

namespace cleave::training {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/training/Passes.h.inc"

} // namespace cleave::training
