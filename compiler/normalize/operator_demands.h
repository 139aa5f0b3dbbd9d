// A table of demands on attributes and operands that ONNX's schemas do not have, read by check_node.cpp.
#pragma once
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace cleave::normalize {

// An integer attribute that is from `least` to `most`. An empty operator: of every operator that has the attribute.
struct NumberDemand {
  llvm::StringRef op, attribute;
  int64_t least, most;
};

// A text attribute that is one of these words, which `|` separates.
struct WordDemand {
  llvm::StringRef op, attribute, words;
};

// A list attribute of as many entries as its first operand has spatial dimensions (those after N and C), times `each`,
// all of them from `least` to `most`.
struct WindowDemand {
  llvm::StringRef attribute;
  int64_t each, least, most;
};

// The operands' dimensions, operands separated by commas: a letter is a dimension, the same wherever it stands, `.` any
// dimension, a digit that size, `*` any number of dimensions. "N C *,C,C": scale and bias are of x's channels.
struct ShapeDemand {
  llvm::StringRef op, operands;
};

llvm::ArrayRef<NumberDemand> numberDemands();
llvm::ArrayRef<WordDemand> wordDemands();
llvm::ArrayRef<WindowDemand> windowDemands(); // of convolutions and pools, isWindowed
llvm::ArrayRef<ShapeDemand> shapeDemands();
bool isWindowed(llvm::StringRef op);

} // namespace cleave::normalize
