// The unit attribute of a Dropout node that belongs to a low-rank adapter (compiler/training/AddAdapters.cpp): it has a
// ratio of its own, whatever the recipe says of the model's.
#pragma once
#include "llvm/ADT/StringRef.h"

namespace cleave::normalize {

inline constexpr llvm::StringLiteral adapterDropoutName = "cleave.adapter_dropout";

} // namespace cleave::normalize
