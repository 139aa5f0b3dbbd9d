// A plan written by hand: y = relu(x w1 + b1) w2, mean squared error, SGD; batch split over dp, hidden units over tp.
// Gradients are all-reduced over dp on the communication stream in one bucket, the partial y over tp.
#pragma once
#include "plan/plan.pb.h"
#include <cstdint>
#include <vector>

namespace cleave::runtime::test {

struct MlpShape {
  int64_t dp = 1, tp = 1;
  int64_t batch = 16, in = 24, hidden = 32, out = 8;
  double lr = 0.1;
  bool asynchronous = true; // the gradients' collective on stream 1
};

plan::Plan mlpPlan(const MlpShape &shape);

// The same step in plain double loops: the loss before every step.
struct MlpData {
  std::vector<float> w1, b1, w2, x, t;
};
MlpData mlpData(const MlpShape &shape);
std::vector<double> mlpLosses(const MlpShape &shape, MlpData data, int steps);

} // namespace cleave::runtime::test
