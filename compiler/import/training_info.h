// ONNX's own description of a training (ModelProto.training_info): an algorithm graph that goes on from the inference
// graph. Read where it has the form that the operators of ai.onnx.preview.training are made for:
//
//     loss = SoftmaxCrossEntropyLoss(logits, labels)         forward graph, from here or the inference graph on
//     gw, gb = Gradient<xs = ["w", "b"], y = "loss">(w, b)
//     w2, b2, vw2, ... = Adam(R, T, w, b, gw, gb, vw, ...)   or Adagrad, Momentum, or Sub(w, Mul(R, gw))
//     T2 = Add(T, 1);  update_binding: w = w2, b = b2, vw = vw2, ..., T = T2
//
// Cleave builds the gradients itself and has the optimizer as a rule of its own: what is taken is the loss, which
// parameters train, the rule and its numbers.
#pragma once
#include "compiler/import/model_file.h"

namespace cleave::import_ {

// Never fails: what does not fit the form is in `fault`, or in `optimizerFault` where only the optimizer does not, with
// the node. The model has one training_info or more.
recipe::ModelTraining readTrainingInfo(const ModelFile &model);

// The inference graph and what of the algorithm graph computes `loss`, its new output. `model.training` names it.
void appendLoss(ModelFile &model);

} // namespace cleave::import_
