// The statements of a model's own file on its training, and how a recipe takes them: onnxruntime-training's artifacts
// and ONNX's training_info name the loss, the trained parameters and the optimizer. The recipe always wins.
//
//     ModelTraining says{.source = "the artifacts", .loss = "onnx::loss::2", .trained = {"fc.weight"}, ...};
//     std::vector<std::string> notes;
//     takeFromModel(recipe, says, notes);   // a recipe of {dims: {batch: 8}, optimizer: {lr: 0.01}} has all it needs
//     notes[0] == "from the artifacts: the loss is the graph's output 'onnx::loss::2'"
#pragma once
#include "compiler/recipe/recipe.h"

namespace cleave::recipe {

struct ModelTraining {
  std::string source;                 // "the artifacts", "training_info"
  std::string fault;                  // not empty: nothing of it can be taken, with file and node
  std::string loss;                   // the graph's output that is the loss
  std::optional<std::string> labels;  // the graph's input that the loss compares with, where it has a usual name
  std::vector<std::string> trained;   // parameters, by name
  std::optional<Optimizer> optimizer; // absent: `optimizerFault` says why
  bool givesRate = false;             // the learning rate, too
  // The part that a step takes off the parameters that decay, whatever its learning rate is: ONNX's
  // norm_coefficient_post.
  double stepDecay = 0;
  std::string optimizerFault; // names file and node
  std::optional<double> clipNorm;
  std::vector<InitRule> initial;  // of parameters whose weights are missing
  std::vector<std::string> notes; // what else a person should know
};

// Fills in loss, trained parameters, ties (parameters are those that the file names), optimizer and clipping where the
// recipe leaves them open; an `optimizer` without a `kind` changes single values of the model's. Each thing that was
// taken, or not, is a note. Errors: a recipe without an optimizer for a model whose own is not known; one without loss
// or optimizer for a model of which nothing can be taken; a learning rate that changes for a model whose decay does
// not.
Status takeFromModel(Recipe &recipe, const ModelTraining &model, std::vector<std::string> &notes);

// Its statements, for `cleave inspect`.
std::vector<std::string> whatItSays(const ModelTraining &model);

// "adamw (betas 0.9, 0.999, eps 1e-06, weight_decay 0, form onnx)": what a person would have to write.
std::string describe(const Optimizer &optimizer);

// The shortest decimal number that is this float: 0.9, not 0.899999976.
double shortest(float value);

} // namespace cleave::recipe
