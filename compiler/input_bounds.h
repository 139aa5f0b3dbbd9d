// How large the integers of an input may be, so far as the graph tells: what synthetic data and `verify` draw from.
//
//   tokens -> Gather(wte [65, 64], tokens)              65
//   labels -> Equal(labels, Iota of 10 classes)         10
//   attention_mask -> Cast to i1                         2
#pragma once
#include "mlir/IR/Value.h"

namespace cleave {

// Exclusive bound of the values of an integer argument; 2 where the graph tells nothing.
int64_t upperBound(mlir::BlockArgument argument);

} // namespace cleave
