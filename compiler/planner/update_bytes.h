// What the update of a parameter makes on its way, on a device: of the shard that it works on under ZeRO, unless a
// product in it needs all of the parameter, whatever a device keeps.
//
//   LAMB's step of w [4096, 4096] in fp32, dp=8 zero 1:   8 MiB, and 64 with zero 0
#pragma once
#include "compiler/planner/split_model.h"

namespace cleave::planner {

inline double updateBytes(const SplitModel &model, int tensor, Layout home) {
  const bool isCut = model.zeroStage(tensor) >= 1 && model.problem->tensors[size_t(tensor)].update.products == 0;
  const double all = model.updateBytesOf(tensor, home);
  if (all == 0 || !isCut || model.zeroDimension(tensor, home) < 0) return all;
  return all / double(model.setting.zeroWays());
}

} // namespace cleave::planner
