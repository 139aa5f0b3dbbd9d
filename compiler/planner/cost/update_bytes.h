// The bytes that the update of a parameter makes on its way, on a device: of the shard that it works on under ZeRO and
// tensor parallelism, unless a product in it needs all of the parameter, whatever a device keeps.
//
//   LAMB's step of w [4096, 4096] in fp32, dp=8 zero 1:   8 MiB, and 64 with zero 0
#pragma once
#include "compiler/planner/split/split_model.h"

namespace cleave::planner {

inline double updateBytes(const SplitModel &model, int tensor, Layout home) {
  const Tensor &parameter = model.problem->tensors[size_t(tensor)];
  if (parameter.updateBytes == 0) return 0;
  if (parameter.update.products > 0) return double(parameter.elements()) * parameter.updateBytes;
  const double kept = model.parameterBytes(tensor, home) * parameter.updateBytes / double(parameter.elementBytes);
  const bool isCut = model.zeroStage(tensor) >= 1 && model.zeroDimension(tensor, home) >= 0;
  return isCut ? kept / double(model.setting.zeroWays()) : kept;
}

} // namespace cleave::planner
