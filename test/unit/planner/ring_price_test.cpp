// Attention on a ring of devices against its formula: each device's queries meet the keys of one device at a time.
#include "compiler/planner/split/split_model.h"
#include "test/unit/planner/problem_builder.h"
#include <gtest/gtest.h>

namespace cleave::planner {
namespace {

constexpr int64_t positions = 256, hidden = 128, heads = 4, ring = 4;

TEST(RingPrice, IsThatOfOneProductForEachDevicesKeys) {
  const Problem problem = testing::gpt({16, positions, hidden, heads, 2, 512});
  Result<Cluster> cluster = parseCluster("v100-32g:4");
  ASSERT_TRUE(cluster);
  Device &device = cluster->device;
  device.fusedAttention = false;
  device.memoryBandwidth = 1e18; // products are as long as their FLOPs take
  Result<Constraints> constraints = parseConstraints({.mesh = "cp=4", .like = "ring"}, *cluster);
  ASSERT_TRUE(constraints) << constraints.status().message();
  const ProblemFacts facts = gatherFacts(problem, *constraints);
  ASSERT_EQ(facts.sequence.attentions.size(), 2u);
  Setting setting;
  setting.cp = ring;
  setting.microbatches = 16; // a sample each
  auto model = buildModel(problem, facts, *cluster, *constraints, setting);
  ASSERT_TRUE(model) << model.status().message();
  const AttentionNodes &attention = facts.sequence.attentions[0];
  ASSERT_TRUE(model->isOnRing(attention.score) && model->isOnRing(attention.weigh));
  auto of = [&](int node) -> const Candidate & {
    return model->variables[size_t(model->variableOfNode[size_t(node)])].candidates[0];
  };
  // Rows and keys of one device, head by head; as many kernels as there are devices.
  const double rows = double(positions / ring), keys = rows, wide = double(hidden / heads),
               half = device.halfRateDimension;
  const double rate = device.flopsAt(problem.precision) * device.computeEfficiency * device.batchedEfficiency /
                      ((1 + half / rows) * (1 + half / keys) * (1 + half / wide));
  const double flops = 2.0 * rows * double(positions) * double(hidden);
  const double product = flops / rate + double(ring) * device.launchSeconds;
  EXPECT_NEAR(of(attention.score).forward, product, 1e-9 * product);
  EXPECT_NEAR(of(attention.weigh).forward, product, 1e-9 * product);
  EXPECT_EQ(of(attention.score).forwardLaunches, double(ring));
  // Gradients of both operands, and the scores once more.
  EXPECT_NEAR(of(attention.score).backward, 3 * product, 1e-9 * product);
  EXPECT_NEAR(of(attention.weigh).backward, 2 * product, 1e-9 * product);
  // Keys and values go round in either pass, and with their gradients in the backward pass.
  double travelled = 0;
  for (const Exchange &exchange : of(attention.weigh).exchanges)
    if (exchange.axes == setOf({Axis::Sequence})) travelled += (exchange.forward + exchange.backward) * exchange.bytes;
  EXPECT_EQ(travelled, 3.0 * 2 * double(positions * hidden) * 4);
}

} // namespace
} // namespace cleave::planner
