// Where a step's seconds go, and what twice the rate of one thing brings.
#include "compiler/planner/breakdown.h"
#include "compiler/planner/search.h"
#include "test/unit/planner/problem_builder.h"
#include <gtest/gtest.h>
#include <map>

namespace cleave::planner {
namespace {

std::vector<Sensitivity> sensitivitiesOf(const Problem &problem, const Cluster &cluster, const SplitFlags &flags) {
  Result<Decision> decision = solve(problem, cluster, *parseConstraints(flags, cluster), {.alternatives = false});
  EXPECT_TRUE(decision) << decision.status().message();
  Result<DecidedModel> decided = decidedModel(problem, cluster, *decision);
  EXPECT_TRUE(decided) << decided.status().message();
  Result<std::vector<Sensitivity>> better = sensitivities(*decided);
  EXPECT_TRUE(better) << better.status().message();
  std::vector<Sensitivity> rows = {{"now", decision->predicted.stepSeconds}};
  rows.insert(rows.end(), better->begin(), better->end());
  return rows;
}

// A CPU's kernels are arithmetic, too.
TEST(Sensitivity, TwiceTheComputeOfACpuIsTwiceThatOfItsKernels) {
  Cluster cluster = *parseCluster("cpu:1");
  cluster.device.memoryBandwidth = 1e18;
  cluster.device.launchSeconds = cluster.device.soloLaunchSeconds = cluster.device.productStartSeconds = 1e-15;
  const std::vector<Sensitivity> rows =
      sensitivitiesOf(testing::gpt({8, 64, 128, 8, 2, 512}), cluster, {.microbatches = "1", .recompute = "none"});
  ASSERT_EQ(rows[1].what, std::string("compute"));
  EXPECT_NEAR(rows[1].stepSeconds, rows[0].stepSeconds / 2, 1e-4 * rows[0].stepSeconds);
}

// Collectives of devices that share a cache are those of a node, too.
TEST(Sensitivity, TwiceTheBandwidthInsideANodeIsThatOfItsCache) {
  Cluster cluster = *parseCluster("cpu:2");
  cluster.device.caches = {{1e12, 1e12}};
  cluster.node.cacheBandwidth = 1e3;
  cluster.node.latency = 0;
  const std::vector<Sensitivity> rows = sensitivitiesOf(testing::mlp(32, 64, 128, 10), cluster,
                                                        {.microbatches = "1", .recompute = "none", .like = "ddp"});
  ASSERT_EQ(rows[3].what, std::string("bandwidth inside a node"));
  EXPECT_NEAR(rows[3].stepSeconds, rows[0].stepSeconds / 2, 1e-3 * rows[0].stepSeconds);
}

// A kernel in 16 bits reads and writes in its casts: its time is that of what they are for.
TEST(TimeParts, CastsOfAKernelAreNoTimeOfTheirOwn) {
  testing::ProblemBuilder b("casts", 16);
  const int x = b.op("up", "Contract", "bk,kn->bn", {b.input("x", {16, 64}), b.parameter("w", {64, 64})});
  const int wide = b.op("widen", "Cast", "bn->bn", {x});
  const int narrow = b.op("narrow", "Cast", "bn->bn", {b.op("gelu", "Exp", "bn->bn", {wide})});
  b.op("loss", "Sum", "bm->", {b.op("down", "Contract", "bn,nm->bm", {narrow, b.parameter("v", {64, 64})})});
  const Cluster cluster = *parseCluster("a100-80g:2");
  Result<Decision> decision =
      solve(b.problem, cluster, *parseConstraints({.mesh = "dp=2"}, cluster), {.alternatives = false});
  ASSERT_TRUE(decision) << decision.status().message();
  Result<DecidedModel> decided = decidedModel(b.problem, cluster, *decision);
  ASSERT_TRUE(decided) << decided.status().message();
  std::map<std::string, TimePart> ofOp;
  for (const TimePart &part : timeParts(*decided)) {
    ofOp[part.op].count += part.count;
    ofOp[part.op].computeSeconds += part.computeSeconds;
  }
  EXPECT_EQ(ofOp["Cast"].count, 2);
  EXPECT_EQ(ofOp["Cast"].computeSeconds, 0);
  EXPECT_GT(ofOp["Exp"].computeSeconds, 0);
}

} // namespace
} // namespace cleave::planner
