// Sizes that do not divide over the devices, made so that they do: a step on more entries, of which some count nothing.
//
//   61 words over tp = 4      64 rows of the table, 16 a device; the last 3 are zeros, and their logits count nothing
//
// What a padded entry holds does not matter as long as it is finite: no operation mixes it with the others but those
// that reduce its dimension, and these get their neutral element there. The gradient of that choice is zero at padded
// entries, so that gradients of all that was computed from them are zero, too. One exception is a product of a padded
// entry and a parameter: the gradient of the parameter's entry is zero only if the other factor is (Fill).
#pragma once
#include "mlir/Pass/Pass.h"

namespace cleave::padding {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/padding/Passes.h.inc"

// What a dimension of so many entries becomes: a multiple of `multiple`, or of its half, its quarter ... if that is more
// than `most` of it away; itself if all are, or it divides.
int64_t paddedSize(int64_t size, int64_t multiple, double most);

} // namespace cleave::padding
