// What each single choice of one report would be worth in another one's place, everything else as it is there.
//
//   priceSingleChanges(ddp, zero1)   {"as it is", 526 ms, ...}, {"zero 1", 518 ms, ...}
#pragma once
#include "compiler/report/report.h"

namespace cleave::report {

struct SingleChange {
  std::string what;
  double stepSeconds = 0, memoryBytes = 0; // 0 where it cannot be priced
  std::string whyNot;                      // it cannot be priced, or does not fit
};

// The first row is the left report as it is, priced in the same way: with its mesh, ZeRO, microbatches, schedule and
// recomputation of each block, and shardings chosen again. Errors: a report that has no source.
Result<std::vector<SingleChange>> priceSingleChanges(const Report &left, const Report &right);

} // namespace cleave::report
