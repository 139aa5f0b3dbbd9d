// The differences between two reports, for the text and the page of `--diff`.
//
//   differences(ddp, zero1).split    {"zero", "0", "1"}
//   differences(ddp, zero1).worth    {"step time", "526 ms", "518 ms", "-1.5 %"}
#pragma once
#include "compiler/report/single_changes.h"
#include <string>
#include <vector>

namespace cleave::report {

struct Difference {
  std::string what, left, right;
  std::string change = {}; // "+3.1 %"; "" where nothing can be compared
};

struct Differences {
  std::vector<Difference> split, worth, collectives;
  int64_t smallerZeroChanges = 0;     // that `split` does not list
  std::vector<SingleChange> singles;  // "as it is" first; empty where the split is the same or cannot be priced
  std::vector<Difference> parameters; // that lie differently; "" where one has it not
  bool isSameSplit() const { return split.empty(); }
};
Differences differences(const Report &left, const Report &right);

} // namespace cleave::report
