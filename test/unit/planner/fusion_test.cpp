// The tensors that fusion leaves in memory, and the effect of the host's dispatch on a pass, against hand counts.
#include "compiler/planner/cost/activity_costs.h"
#include "test/unit/planner/problem_builder.h"
#include <gtest/gtest.h>

namespace cleave::planner {
namespace {

using testing::ProblemBuilder;

// y = x w;  u = y y;  e = erf u;  g = e y;  z = g v, all of the middle read by the backward pass.
struct Gelu {
  ProblemBuilder b{"gelu", 16};
  int x = b.input("x", {16, 64}), w = b.parameter("w", {64, 256}), v = b.parameter("v", {256, 64});
  int y = b.op("up", "Contract", "bk,kn->bn", {x, w});
  int u = b.op("square", "Mul", "bn,bn->bn", {y, y});
  int e = b.op("erf", "Erf", "bn->bn", {u});
  int g = b.op("gate", "Mul", "bn,bn->bn", {e, y});
  int z = b.op("down", "Contract", "bk,kn->bn", {g, v});
  int loss = b.op("loss", "Sum", "bn->", {z});
  Gelu() {
    for (int tensor : {y, u, e, g}) b.problem.tensors[size_t(tensor)].saved = true;
  }
};

TEST(Fusion, TheBackwardPassMakesWhatIsInsideAKernelAgain) {
  Gelu gelu;
  std::vector<bool> kept = findFusion(Graph(gelu.b.problem), {}).kept;
  EXPECT_TRUE(kept[size_t(gelu.y)]);
  EXPECT_FALSE(kept[size_t(gelu.u)]);
  EXPECT_FALSE(kept[size_t(gelu.e)]);
  EXPECT_TRUE(kept[size_t(gelu.g)]);
  EXPECT_FALSE(kept[size_t(gelu.z)]);
}

// A library takes the greatest of each window from memory, and finds it there again in the backward pass: r is kept and
// not y, from which a kernel could make it.
TEST(Fusion, WhatIsPooledStandsInMemory) {
  ProblemBuilder b("pool", 16);
  const int x = b.input("x", {16, 64}), w = b.parameter("w", {64, 256}), v = b.parameter("v", {256, 64});
  const int y = b.op("up", "Contract", "bk,kn->bn", {x, w});
  const int r = b.op("relu", "Relu", "bn->bn", {y});
  const int m = b.op("pool", "MaxPool", "bn->bn", {r});
  b.op("loss", "Sum", "bn->", {b.op("down", "Contract", "bk,kn->bn", {m, v})});
  for (int tensor : {r, m}) b.problem.tensors[size_t(tensor)].saved = true;
  std::vector<bool> kept = findFusion(Graph(b.problem), {}).kept;
  EXPECT_FALSE(kept[size_t(y)]);
  EXPECT_TRUE(kept[size_t(r)]);
  EXPECT_TRUE(kept[size_t(m)]);
}

// Logits of 20,000 words: greatest of each row, difference, exp, sum. Megatron-LM's kernels take rows of 16,384.
TEST(Fusion, ALongRowIsOneKernelWhereTheSoftwareHasIt) {
  ProblemBuilder b("loss", 16);
  const int x = b.input("x", {16, 64}), w = b.parameter("w", {64, 20000});
  const int y = b.op("logits", "Contract", "bk,kn->bn", {x, w});
  const int d = b.op("shift", "Sub", "bn,b->bn", {y, b.op("greatest", "ReduceMax", "bn->b", {y})});
  const int e = b.op("exp", "Exp", "bn->bn", {d});
  b.op("loss", "Sum", "b->", {b.op("sum", "ReduceSum", "bn->b", {e})});
  b.problem.tensors[size_t(e)].saved = true;
  for (const char *cluster : {"a100-80g:1", "cpu:1", "a100-80g:1,software=megatron-core-2024"}) {
    const Fusion fusion = findFusion(Graph(b.problem), parseCluster(cluster)->device);
    const bool isOneKernel = !std::string(cluster).ends_with("2024");
    EXPECT_EQ(fusion.kept[size_t(e)], !isOneKernel) << cluster;
    for (size_t i = 1; i < fusion.work.size(); ++i) EXPECT_EQ(fusion.work[i].isFused, isOneKernel) << cluster << i;
  }
}

TEST(Dispatch, APassTakesAtLeastItsKernelsDispatch) {
  Gelu gelu;
  Cluster cluster = *parseCluster("a100-80g:1");
  Constraints constraints;
  ProblemFacts facts = gatherFacts(gelu.b.problem, cluster.device, constraints);
  double forward = 0, backward = 0;
  cluster.device.dispatchSeconds = 1; // nothing that the device does takes as long
  auto model = buildModel(gelu.b.problem, facts, cluster, constraints, Setting{});
  ASSERT_TRUE(model);
  ActivityCosts costs = costActivity(*model, std::vector<int>(model->variables.size(), 0));
  for (const Unit &unit : model->layout->units) {
    forward += costs.of(unit.kind, Recompute::None).forward;
    backward +=
        costs.of(unit.kind, Recompute::None).backwardInput + costs.of(unit.kind, Recompute::None).backwardWeight;
  }
  // Forward: two products, the fused gate, the loss. Backward: x needs no gradient, so one product and then two.
  EXPECT_NEAR(forward, 4, 1e-3);
  EXPECT_NEAR(backward, 5, 1e-3);
  EXPECT_LE(leastPassSeconds(*model, Recompute::None), forward + backward + 1e-9);
}

} // namespace
} // namespace cleave::planner
