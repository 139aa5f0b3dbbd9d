// A plan of nothing but transfers between the two stages of a pipeline: many messages, few buffers, and a channel whose
// messages are taken last of all.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/sharding/mesh.h"
#include <string>
#include <vector>

namespace cleave::runtime::test {

// What the stage receives in the parameter of this name: the tensor of the same device row in the sender's stage.
struct TransferTensor {
  std::string name;
  int64_t number = 0, elements = 0;
  int fromStage = 0, toStage = 0;
};

struct TransferPlan {
  explicit TransferPlan(const dist::Mesh &mesh); // of the axes pp, of two devices, and dp
  plan::Plan plan;
  std::vector<TransferTensor> tensors;
};

} // namespace cleave::runtime::test
