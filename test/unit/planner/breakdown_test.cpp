// Where a step's seconds go, and what twice the rate of one thing brings.
#include "compiler/planner/explain/breakdown.h"
#include "compiler/planner/explain/memory_over_time.h"
#include "compiler/planner/search/driver/search.h"
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
  for (const TimePart &part : breakdown(*decided).time) {
    ofOp[part.op].count += part.count;
    ofOp[part.op].computeSeconds += part.computeSeconds;
  }
  EXPECT_EQ(ofOp["Cast"].count, 2);
  EXPECT_EQ(ofOp["Cast"].computeSeconds, 0);
  EXPECT_GT(ofOp["Exp"].computeSeconds, 0);
}

struct OverTime {
  Predicted predicted;
  std::vector<MemoryPoint> points;
  double most = 0; // of all kinds together
};
OverTime overTime(const Problem &problem, const std::string &machines, const SplitFlags &flags) {
  const Cluster cluster = *parseCluster(machines);
  Result<Decision> decision = solve(problem, cluster, *parseConstraints(flags, cluster), {.alternatives = false});
  if (!decision) return ADD_FAILURE() << decision.status().message(), OverTime();
  Result<MemoryOverTime> memory = memoryOverTime(*decidedModel(problem, cluster, *decision));
  if (!memory) return ADD_FAILURE() << memory.status().message(), OverTime();
  OverTime result{decision->predicted, memory->ranks[memory->fullest]};
  for (const MemoryPoint &point : result.points) result.most = std::max(result.most, point.memory.total());
  return result;
}

// Gradients of the only microbatch come layer by layer, the table's first, which the head reads and the embedding
// again.
TEST(MemoryOverTime, GradientsAreThereFromThePassThatMakesThem) {
  const Problem problem = testing::gpt({16, 16, 32, 4, 3, 64});
  double ofLayer = 0, ofTable = 0, all = 0, inLayer = 0, parameters = 0;
  for (const Tensor &tensor : problem.tensors) {
    if (tensor.kind != TensorKind::Parameter) continue;
    all += tensor.bytes();
    ++parameters;
    if (tensor.name.starts_with("layers.1/")) ofLayer += tensor.bytes(), ++inLayer;
    if (tensor.name == "tok_emb.weight") ofTable += tensor.bytes();
  }
  for (const char *like : {"ddp", "zero2"}) {
    const OverTime memory = overTime(problem, "cpu:4", {.microbatches = "1", .recompute = "none", .like = like});
    const double parts = like == std::string("zero2") ? 4 : 1;
    constexpr double aligned = 128; // up to so many bytes more of a tensor, which begins at a multiple of 64
    double before = 0, workspace = 0, activations = 0;
    int layers = 0;
    for (const MemoryPoint &point : memory.points) {
      const double made = point.memory.gradients - before;
      EXPECT_GE(made, 0);
      if (point.part == StepPart::Forward) EXPECT_EQ(made, 0);
      if (point.part == StepPart::Backward && before == 0) EXPECT_GE(made, ofTable / parts);
      layers += std::abs(made - ofLayer / parts) <= inLayer * aligned;
      before = point.memory.gradients;
      workspace = std::max(workspace, point.memory.workspace);
      activations = std::max(activations, point.memory.activations);
    }
    EXPECT_EQ(layers, 3);
    EXPECT_NEAR(before, all / parts, parameters * aligned);
    EXPECT_LE(memory.predicted.memory.gradients, before); // most of them have the room of activations
    EXPECT_NEAR(workspace, memory.predicted.memory.workspace, 1);
    EXPECT_EQ(memory.points.back().part, StepPart::Update);
    EXPECT_EQ(memory.points.back().memory.activations, 0);
    EXPECT_NEAR(memory.points.back().seconds, memory.predicted.stepSeconds, 1e-9);
    // The estimate has all of them beside all activations.
    EXPECT_LT(memory.most, memory.predicted.memory.total());
    EXPECT_NEAR(activations, memory.predicted.memory.activations, 1);
  }
}

// Sums over several microbatches lie there all step long.
TEST(MemoryOverTime, SumsOfGradientsStay) {
  const OverTime memory = overTime(testing::gpt({16, 16, 32, 4, 3, 64}), "cpu:4",
                                   {.microbatches = "2", .recompute = "none", .like = "ddp"});
  for (const MemoryPoint &point : memory.points) EXPECT_EQ(point.memory.gradients, memory.predicted.memory.gradients);
  EXPECT_NEAR(memory.most, memory.predicted.memory.total(), 1);
}

// With ZeRO-3 the passes have two gathered parameters, as large as the table, and the update has none. It has a bucket
// of updated parameters and, where it waits for their norm, means of all gradients.
TEST(MemoryOverTime, WorkspaceIsWhatEachPartOfTheStepNeeds) {
  Problem problem = testing::gpt({16, 16, 32, 4, 3, 4096});
  const double table = 4.0 * 4096 * 32, scalars = 16 * 64;
  double shards = 0;
  for (const Tensor &tensor : problem.tensors)
    if (tensor.kind == TensorKind::Parameter) shards += tensor.bytes() / 4;
  for (bool meets : {false, true}) {
    problem.meetsAtUpdate = meets;
    const OverTime memory = overTime(problem, "cpu:4", {.microbatches = "2", .recompute = "none", .like = "zero3"});
    const MemoryBreakdown &all = memory.predicted.memory;
    EXPECT_NEAR(memory.points.back().memory.workspace, scalars + all.gradients + all.parameters + (meets ? shards : 0),
                1);
    EXPECT_GT(memory.points.front().memory.workspace, scalars + 2 * table);
    EXPECT_LT(memory.points.front().memory.workspace, all.workspace);
    EXPECT_NEAR(memory.most, all.total(), 1);
  }
}

// The time that gathers and scatters over tp hide behind their products is hidden communication, too.
TEST(TimeParts, WhatProductsHideIsBesideCompute) {
  Cluster cluster = *parseCluster("a100-80g:4");
  cluster.device.tensorOverlap = 0.75;
  const Problem problem = testing::gpt({16, 64, 128, 4, 3, 512});
  Result<Decision> decision =
      solve(problem, cluster, *parseConstraints({.mesh = "tp=4", .microbatches = "1", .like = "megatron-sp"}, cluster),
            {.alternatives = false});
  ASSERT_TRUE(decision) << decision.status().message();
  Result<DecidedModel> decided = decidedModel(problem, cluster, *decision);
  ASSERT_TRUE(decided) << decided.status().message();
  double beside = 0, alone = 0;
  for (const TimePart &part : breakdown(*decided).time) beside += part.besideSeconds;
  for (const CollectiveTotal &one : breakdown(*decided).collectives) {
    const bool overlaps = one.op == "all_gather" || one.op == "reduce_scatter" || one.op == "all_to_all";
    if (overlaps) alone += one.seconds;
    EXPECT_EQ(one.hidden, overlaps) << one.op << " " << one.why;
  }
  EXPECT_GT(alone, 0);
  EXPECT_NEAR(beside, 0.75 * alone, 1e-9 * alone);
  EXPECT_NEAR(breakdown(*decided).hiddenBehindProducts, beside, 1e-9 * alone);
}

// Halves of a norm may look alike: what recurs without a weight is no block.
TEST(TimeParts, OnlyWhatHasWeightsIsNamedAsRepetitions) {
  testing::ProblemBuilder b("halves", 16);
  int x = b.op("up", "Contract", "bk,kn->bn", {b.input("x", {16, 64}), b.parameter("w", {64, 64})});
  for (const char *half : {"norm/a", "norm/b"})
    x = b.op(std::string(half) + "/exp", "Exp", "bn->bn",
             {b.op(std::string(half) + "/scale", "Mul", "bn,bn->bn", {x, x})});
  b.op("loss", "Sum", "bm->", {b.op("down", "Contract", "bn,nm->bm", {x, b.parameter("v", {64, 64})})});
  ASSERT_EQ(b.problem.findRepeats().size(), 1u);
  const Cluster cluster = *parseCluster("cpu:2");
  Result<Decision> decision =
      solve(b.problem, cluster, *parseConstraints({.like = "ddp"}, cluster), {.alternatives = false});
  ASSERT_TRUE(decision) << decision.status().message();
  for (const TimePart &part : breakdown(*decidedModel(b.problem, cluster, *decision)).time)
    EXPECT_TRUE(part.part.starts_with("near ")) << part.part;
}

} // namespace
} // namespace cleave::planner
