// The words of the recipe's enums, in one place: parser, printer and messages read these tables.
#pragma once
#include "compiler/recipe/recipe.h"
#include <span>

namespace cleave::recipe {

template <typename Kind> struct Word {
  Kind kind;
  const char *word;
};

// words<LossKind>() lists {LossKind::SoftmaxCrossEntropy, "softmax_cross_entropy"}, ...: every value once.
template <typename Kind> std::span<const Word<Kind>> words();

} // namespace cleave::recipe
