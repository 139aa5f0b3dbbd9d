#include "compiler/planner/search.h"
#include "test/unit/planner/problem_builder.h"
#include <gmock/gmock.h>

namespace cleave::planner {
namespace {

using testing::gpt;
using testing::mlp;

Decision mustSolve(const Problem &problem, const std::string &cluster, const SplitFlags &flags = {},
                   SearchOptions options = {}) {
  Result<Cluster> machines = parseCluster(cluster);
  EXPECT_TRUE(machines) << machines.status().message();
  Result<Constraints> constraints = parseConstraints(flags, *machines);
  EXPECT_TRUE(constraints) << constraints.status().message();
  Result<Decision> decision = solve(problem, *machines, *constraints, options);
  EXPECT_TRUE(decision) << decision.status().message();
  return decision ? *decision : Decision();
}

TEST(Search, ADdpPresetSplitsOnlySamples) {
  Problem problem = mlp(32, 64, 128, 10);
  Decision decision = mustSolve(problem, "cpu:4", {.like = "ddp"});
  EXPECT_EQ(decision.mesh.str(), "dp=4,tp=1");
  EXPECT_EQ(decision.zero, 0);
  for (const NodeDecision &node : decision.nodes) EXPECT_THAT(node.split[0], ::testing::ElementsAre("dp")) << node.node;
  for (const ParameterDecision &parameter : decision.parameters) EXPECT_TRUE(parameter.parameter.isReplicated());
}

TEST(Search, Zero3SplitsEveryParameterOverTheLargestDimension) {
  Decision decision = mustSolve(mlp(32, 64, 128, 10), "cpu:4", {.like = "zero3"});
  EXPECT_EQ(decision.findParameter("up.weight")->parameter.str(), "[{},{dp}]");
  EXPECT_EQ(decision.findParameter("down.weight")->state.str(), "[{dp},{}]");
  EXPECT_EQ(decision.findParameter("down.bias")->parameter.str(), "[{}]"); // 10 does not divide by 4
}

TEST(Search, MegatronSplitsColumnThenRow) {
  Decision decision = mustSolve(gpt({8, 64, 128, 8, 3, 512}), "cpu:4", {.like = "megatron"});
  EXPECT_EQ(decision.mesh.str(), "dp=1,tp=4");
  for (const char *block : {"layers.0", "layers.2"}) {
    std::string at = block;
    EXPECT_EQ(decision.findParameter(at + "/q.weight")->parameter.str(), "[{},{tp},{}]");
    EXPECT_EQ(decision.findParameter(at + "/proj.weight")->parameter.str(), "[{tp},{},{}]");
    EXPECT_EQ(decision.findParameter(at + "/up.weight")->parameter.str(), "[{},{tp}]");
    EXPECT_EQ(decision.findParameter(at + "/up.bias")->parameter.str(), "[{tp}]");
    EXPECT_EQ(decision.findParameter(at + "/down.weight")->parameter.str(), "[{tp},{}]");
  }
  EXPECT_EQ(decision.findParameter("tok_emb.weight")->parameter.str(), "[{tp},{}]");
}

TEST(Search, TheSearchIsNotSlowerThanAnyPreset) {
  Decision decision = mustSolve(gpt({8, 64, 128, 8, 3, 512}), "a100-80g:4x1");
  EXPECT_LE(decision.gap, 1e-6);
  ASSERT_GE(decision.alternatives.size(), 14u);
  for (const Alternative &row : decision.alternatives)
    if (row.fits) EXPECT_GE(row.stepSeconds, decision.predicted.stepSeconds * (1 - 1e-9)) << row.name;
}

TEST(Search, The175BModelFitsOn1024Devices) {
  Decision decision =
      mustSolve(gpt({1024, 2048, 12288, 96, 96, 51200}), "a100-80g:8x128", {}, {.executableOnly = false});
  EXPECT_EQ(decision.mesh.numDevices(), 1024);
  EXPECT_LT(decision.predicted.memory.total(), 80.0 * (1 << 30));
  EXPECT_LT(decision.searchSeconds, 20);
  printf("%s", decision.text().substr(0, 900).c_str());
  for (const Alternative &row : decision.alternatives)
    printf("%-24s %-18s z%d m%ld %s %8.3f s %8.2f GiB %s\n", row.name.c_str(), row.mesh.str().c_str(), row.zero,
           long(row.microbatches), name(row.recompute), row.stepSeconds, row.memoryBytes / (1 << 30),
           row.whyNot.c_str());
}

} // namespace
} // namespace cleave::planner
