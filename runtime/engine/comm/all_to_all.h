// Where a member's piece of an all-to-all lies: the input cut along splitDim, joined in the output along dim.
//
//   f32[4x6] over 2 members, cut along 1, joined along 0 -> f32[8x3]: pieces of 4x3, 12 bytes apart in the input, 48 in
//   the output
#pragma once
#include "runtime/plan/collective_parts.h"

namespace cleave::runtime {

struct AllToAllPiece {
  std::vector<int64_t> sizes, sourceStrides, targetStrides; // elements
  int64_t sourceStep = 0, targetStep = 0;                   // bytes between the pieces of consecutive members
};
AllToAllPiece pieceOf(const CollectivePart &part, int64_t members);

} // namespace cleave::runtime
