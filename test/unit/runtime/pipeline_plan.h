// A pipeline put together by hand: a chain of square layers, one a stage, y = relu(x w), the last without relu and with
// the mean of (y - t)^2 as loss; trained with plain gradient descent under any schedule's table, split over "pp" and
// "dp". And the same training in plain loops.
//
//   plan::Plan plan = pipelinePlan({.ranks = 2, .schedule = "interleaved:2", .microbatches = 4});
#pragma once
#include "plan/plan.pb.h"
#include <cstdint>
#include <string>
#include <vector>

namespace cleave::runtime::test {

struct PipelineShape {
  int64_t ranks = 2, dp = 1;
  std::string schedule = "1f1b";
  int64_t microbatches = 4, rows = 8, width = 16; // rows of a microbatch over all devices
  float lr = 0.5f;
  bool tied = false; // the first and the last of two stages share their weights
  bool offload =
      false; // what stages keep of y is in the host's memory meanwhile (no two stages side by side on a rank)
};

plan::Plan pipelinePlan(const PipelineShape &shape);
int64_t stagesOf(const PipelineShape &shape);
// x of all microbatches, then t of all: [microbatches, rows, width] each.
struct PipelineData {
  std::vector<float> x, t;
  // As Executor::run takes them.
  std::vector<const std::byte *> pointers(const PipelineShape &shape) const;
};
PipelineData pipelineData(const PipelineShape &shape);
// Loss of every step, in double.
std::vector<double> pipelineLosses(const PipelineShape &shape, const plan::Plan &plan, const PipelineData &data,
                                   int steps);

} // namespace cleave::runtime::test
