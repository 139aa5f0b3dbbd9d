// What each initializer is: a weight to train, a frozen one, a running statistic, a constant; and which initializers
// are one parameter.
//
// A file of `cleave.export` says it all (module_statement.h). Others are read by what their exporter says
// (exporter_metadata.h), and where that is silent by rules (role_rules.h, ties.h), which leave doubts (doubts.h):
//
//     bias [64], all zero, used by Add "fc1" and Add "fc2" behind different weights   -> "bias", "bias#2"   untied
//     wte [50257, 768], used by Gather and through a Transpose by MatMul              -> "wte"              tied
//     wte and val_9 = its transpose, used by Gather and by MatMul                     -> "wte", alias val_9 tied
//     val_4 and val_9, both written by the exporter from "fc.weight"                  -> "val_4", alias val_9 tied
#pragma once
#include "compiler/import/doubts.h"
#include "compiler/import/flatten.h"
#include "compiler/import/graph_index.h"
#include "compiler/import/tensor_store.h"
#include "compiler/import/weights/state_dict.h"
#include "compiler/recipe/glob.h"

namespace cleave::import_ {

struct ImportOptions {
  std::vector<std::string> trainable = {"*"}; // globs over initializer names and the names of nodes that use them
  recipe::Ties ties = recipe::Ties::Auto;
  std::optional<std::string> loss = {}; // the output that is the loss: training_info may be what computes it
  bool keepsFrozen = false;             // weights that the recipe freezes are parameters, however small
  recipe::Init init = {};
  std::vector<std::string> frozen = {}; // globs; they win over `trainable`
  std::map<std::string, recipe::TensorRole> roles = {};
  std::set<int64_t> batches = {}; // sizes of the steps' batches, as far as the recipe says them

  static ImportOptions of(const recipe::Recipe &recipe);
};

enum class Role { Constant, Parameter, RunningStatistic };

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

  std::string kind() const;   // for people: "trained", "frozen", "running statistic", "buffer", "constant"
  std::string symbol() const; // what plans and snapshots call it: the name, unless a function is called so
};

// How an operand reads a parameter.
struct Reading {
  size_t parameter = 0;
  bool transposed = false; // the operand is the parameter's transpose
};

// What an import rests on.
enum class Source { Statement, Metadata, Rules };

struct ParameterTable {
  std::vector<Parameter> parameters;
  std::map<std::string, Reading> byValue; // initializer or Identity output -> what it reads
  std::map<Use, Reading> byUse;           // overrides byValue: untied copies
  std::vector<bool> dissolved;            // by node: an Identity of an initializer, not built
  std::map<size_t, int64_t> paddingRows;  // by node: the row of an embedding's table that has no gradient
  std::set<size_t> trainingNorms;         // BatchNormalization nodes that the exporter wrote as in eval()
  std::vector<std::string> ties;          // decisions, in words
  std::vector<std::string> sharing;       // those that change what the file shares
  std::vector<std::string> notes;         // what a person would be surprised of
  std::vector<Doubt> doubts;              // what would change the numbers, and is not known
  std::vector<std::string> absent;        // parameters that the exporter lists and nothing of the file stands for
  Source source = Source::Rules;
  StateDict state; // PyTorch's names
};

// What the recipe says of tensors: `roles`, `frozen`, `trainable`.
class RecipeRoles {
public:
  explicit RecipeRoles(const ImportOptions &options);

  bool trainsAll = false; // "*": all that is a parameter
  // Whether a tensor trains; none: the recipe says nothing of it but "*". `isNumber`: only its exact name counts, for
  // numbers of Constant nodes, which are called after modules.
  std::optional<recipe::TensorRole> says(const recipe::ParameterNames &names) const; // `roles` alone
  std::optional<bool> trains(const recipe::ParameterNames &names, bool isNumber = false) const;
  bool freezes(const std::string &name) const;

private:
  const ImportOptions &options;
  recipe::ParameterPatterns named, frozen;
};

// Errors: a parameter whose bytes cannot be read from the file; a statement that does not fit the file.
Result<ParameterTable> classifyParameters(const ModelFile &model, const FlatGraph &flat, TensorStore &store,
                                          const ImportOptions &options);

} // namespace cleave::import_
