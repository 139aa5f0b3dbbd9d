// What each initializer is: a weight to train, a frozen one, a running statistic, a constant; and which initializers
// are one parameter. Decided from how they are used and, where their file is there, from their values.
//
// Exporters merge initializers with equal bytes (fresh zero biases, the ones of every LayerNorm), and leave a truly
// tied pair (embedding and head) as one initializer or, transposed at export, as two. `ties: auto` tells them apart:
//
//     bias [64], all zero, used by Add "fc1" and Add "fc2" behind different weights   -> "bias", "bias#2"   untied
//     wte [50257, 768], used by Gather and through a Transpose by MatMul              -> "wte"              tied
//     wte and val_9 = its transpose, used by Gather and by MatMul                     -> "wte", alias val_9 tied
//     val_4 and val_9, both written by the exporter from "fc.weight"                  -> "val_4", alias val_9 tied
#pragma once
#include "compiler/import/flatten.h"
#include "compiler/import/tensor_store.h"
#include "compiler/import/weights/state_dict.h"
#include "compiler/recipe/recipe.h"

namespace cleave::import_ {

struct ImportOptions {
  std::vector<std::string> trainable = {"*"}; // globs over initializer names and the names of nodes that use them
  recipe::Ties ties = recipe::Ties::Auto;
  std::optional<std::string> loss = {}; // the output that is the loss: training_info may be what computes it
  bool keepsFrozen = false;             // weights that the recipe freezes are parameters, however small
  recipe::Init init = {};

  static ImportOptions of(const recipe::Recipe &recipe);
};

enum class Role { Constant, Parameter, RunningStatistic };

// One operand of a node that reads an initializer, possibly through Identity nodes.
struct Use {
  size_t node = 0; // index in FlatGraph::nodes
  int operand = 0;
};

// A persistent tensor or constant of the module.
struct Parameter {
  std::string name; // of a copy, PyTorch's where that is known: "h.1.ln.bias", else "h.0.ln.bias#2"
  StoredTensor tensor;
  Role role = Role::Parameter;
  bool trainable = false;
  bool isWeight = false;            // trained, or frozen by the recipe alone
  std::string why;                  // "matches trainable '*'", "mask (holds -inf)", ...
  std::vector<std::string> aliases; // other initializers that are this one
  std::vector<std::string> transposedAliases;
  std::vector<std::string> foldedFrom; // what the exporter says that it was computed from
  std::vector<Use> uses;

  std::string symbol() const; // what plans and snapshots call it: the name, unless a function is called so
};

// How an operand reads a parameter.
struct Reading {
  size_t parameter = 0;
  bool transposed = false; // the operand is the parameter's transpose
};

struct ParameterTable {
  std::vector<Parameter> parameters;
  std::map<std::string, Reading> byValue;          // initializer or Identity output -> what it reads
  std::map<std::pair<size_t, int>, Reading> byUse; // overrides byValue: untied copies
  std::vector<bool> dissolved;                     // by node: an Identity of an initializer, not built
  std::vector<std::string> ties;                   // decisions, in words
  std::vector<std::string> sharing;                // those that change what the file shares, and guesses
  std::vector<std::string> notes;                  // of parameters that the exporter has computed away
  StateDict state;                                 // PyTorch's names
};

Result<ParameterTable> classifyParameters(const ModelFile &model, const FlatGraph &flat, TensorStore &store,
                                          const ImportOptions &options);

} // namespace cleave::import_
