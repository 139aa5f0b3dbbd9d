// Chooses how an operation that the decision does not know (backward, update) is split: from the layouts its operands
// already have. Candidates that disagree are compared by the bytes they would move and the work they would repeat.
//
//   dX = dY W^T, dY [{dp},{},{tp}], W [{},{tp}]:  b=dp, n=tp (reduced): dX partial(tp), nothing moves before it
#pragma once
#include "compiler/partition/layout_versions.h"

namespace cleave::partition {

// The view of one operation when its split is chosen.
struct SplitQuestion {
  mlir::Operation *op;
  const dist::FactorRule &rule;
  std::vector<dist::Sharding> votes; // one an operand: the layout it has, or is about to get
  dist::Axes passing;                // partial axes that pass through: not to be used for splitting
  const dist::Sharding *hint;        // wanted layout of the result; may be null
  dist::Axes zeroAxes;               // axes that only store a parameter in parts
};

dist::FactorSharding chooseSplit(const dist::Mesh &mesh, const SplitQuestion &question, const LayoutVersions &versions);

} // namespace cleave::partition
