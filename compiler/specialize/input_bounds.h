// Which integers an input may hold, so far as the graph tells: what synthetic data and `verify` draw from, and what the
// data of a run are held against.
//
//   tokens -> Gather(wte [65, 64], tokens)              below 65; from -65 on is an index, too
//   labels -> Equal(labels, Iota of 10 classes)         0 to 9
//             Equal(labels, -100)                       or -100, which the loss ignores
//   attention_mask -> Cast to i1                        nothing is known
#pragma once
#include "mlir/IR/Value.h"
#include <cstdint>
#include <optional>
#include <vector>

namespace cleave {

struct IndexRange {
  int64_t bound = 0;            // values are below it; 0: not known
  std::optional<int64_t> least; // a value below `least`, or not below `bound`, is an error; none: it may be replaced
  std::vector<int64_t> ignored; // are none, wherever they are
};

// `isLabel`: of the recipe's loss, which lets nothing pass but what it ignores.
IndexRange indexRange(mlir::BlockArgument argument, bool isLabel);

} // namespace cleave
