// The worth of each single choice of one report in another one's place, everything else as it is there.
//
//   priceSingleChanges(ddp, zero1)   {"as it is", 526 ms, ...}, {"zero 1", 518 ms, ...}
#pragma once
#include "compiler/report/report.h"
#include <set>

namespace cleave::report {

struct SingleChange {
  std::string what;
  double stepSeconds = 0, memoryBytes = 0; // 0 where it cannot be priced
  std::string whyNot;                      // it cannot be priced, or does not fit
};

// Parameters of one kind, in all blocks, with another ZeRO stage in the right report.
struct ZeroChange {
  std::string parameters; // "layers.*.mlp.up.weight (8 x)"
  std::set<std::string> names;
  double elements = 0; // of all
  int before = 0, after = 0;
};
// Where a report mixes stages: what lies otherwise in the other, the largest first. Else nothing: it is their stage.
std::vector<ZeroChange> zeroChanges(const Report &left, const Report &right);
inline constexpr size_t mostZeroChanges = 8; // that are told, and priced

// The first row is the left report as it is, priced in the same way: with its mesh, ZeRO stage of each parameter,
// microbatches, schedule and recomputation of each block, and shardings chosen again. Errors: a report that has no
// source.
Result<std::vector<SingleChange>> priceSingleChanges(const Report &left, const Report &right);

} // namespace cleave::report
