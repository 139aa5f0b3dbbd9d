// Which uses of one initializer are one parameter, where no names tell. See parameters.h for the cases.
#pragma once
#include "compiler/import/weights/role_rules.h"
#include "compiler/recipe/recipe.h"

namespace cleave::import_ {

struct TieDecision {
  std::vector<std::vector<Use>> groups = {}; // a parameter each
  std::string text = {};                     // "" when there was nothing to decide
  bool isTold = false;                       // it changes what the file shares: `compile` tells it
  bool isDoubtful = false;
};
// Cuts the uses of one trained initializer into groups that are one parameter each. `key`: PyTorch's name of what all
// of them read, else "".
TieDecision groupUses(const RuleContext &context, const std::string &name, const std::vector<Use> &uses,
                      recipe::Ties ties, const std::string &key);

// The decision that an initializer is several of PyTorch's parameters, in words.
std::string tellMerged(const RuleContext &context, const std::string &name, const std::vector<Use> &uses,
                       size_t number);

} // namespace cleave::import_
