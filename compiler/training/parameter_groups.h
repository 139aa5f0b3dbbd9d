// Which numbers of the recipe's optimizer a parameter trains with: its group's, and its layer's share of the rate.
//
//   ParameterGroups groups(recipe.optimizer, parametersOf(final));
//   Result<ParameterGroup> own = groups.of(param);     // own->spec.weightDecay, own->rateScale == 0.1
#pragma once
#include "compiler/recipe/glob.h"
#include "dialects/onnx/Onnx.h"
#include "runtime/base/status.h"

namespace cleave::training {

struct ParameterGroup {
  recipe::Optimizer spec; // with the group's own numbers
  double rateScale = 1;   // of the learning rate
  int64_t since = 0;      // steps after which its state begins
  std::string told;       // what is other than the optimizer's: "lr x 0.1, weight decay 0"
};

class ParameterGroups {
public:
  // `trained`: in the order of the model. `layer_decay` counts their layers.
  ParameterGroups(const recipe::Optimizer &optimizer, llvm::ArrayRef<onnx::ParamOp> trained);

  // Error: layer_decay cannot count layers; pieces of one tensor are in several groups.
  Result<ParameterGroup> of(onnx::ParamOp param) const;

private:
  struct Place {
    bool isExempt = false;       // from weight decay
    std::optional<size_t> group; // the first that fits
    int64_t layersAfter = 0;     // with a lower rate
    bool operator==(const Place &) const = default;
  };
  Place placeOf(mlir::DictionaryAttr param) const;

  const recipe::Optimizer &optimizer;
  recipe::ParameterPatterns noDecay;
  std::vector<recipe::ParameterPatterns> groups;
  std::map<std::string, int64_t> layers; // by symbol or piece: 0 before the first block, blocks from 1 on
  int64_t last = 0;                      // layer
  std::string fault;                     // why layers cannot be counted
};

struct LayerName {
  std::string name; // PyTorch's
  bool isTied = false;
};
// Layers by the first numbers in names: "h.0.attn.w" to "h.11.mlp.b" are layers 1 to 12. Names before them in the list,
// and tied ones, which are embeddings, are layer 0, and those behind layer 13. Error, to stand behind the key: there is
// no list of numbered layers, or more than one; a name that the module did not give.
Result<std::vector<int64_t>> layersOf(const std::vector<LayerName> &parameters);

} // namespace cleave::training
