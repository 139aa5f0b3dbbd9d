// Models with one attention, as the normalize phase leaves them, in the forms that exporters write.
#pragma once
#include <cstdint>
#include <string>

namespace cleave::attention::testing {

enum class Mask {
  None,
  CausalTable,   // a constant table that is added
  CausalWhere,   // positions compared, scores replaced
  Padding,       // an input [samples, keys] of 0 and 1, added as minus infinity; some rows may see nothing
  PaddingFinite, // the same with the lowest float
  TrainedBias,   // a parameter [heads, queries, keys], added
  CausalPadding, // both
  Window,        // positions compared: a query sees three keys up to its own
};

struct Form {
  std::string name;
  Mask mask = Mask::None;
  int64_t groups = 2; // of keys and values, for 4 heads
  bool sequenceFirst = false, guard = false, dropout = false, scaleAfter = true, capped = false;
};

// func @model(x [2,8,6], seen [2,8]) -> logits [2,8,5]; 4 heads of 4.
std::string attentionModel(const Form &form);

} // namespace cleave::attention::testing
