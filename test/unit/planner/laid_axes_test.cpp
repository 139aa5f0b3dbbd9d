// The splits that 2D, 2.5D and 3D tensor parallelism and expert parallelism are known by, against the papers' layouts.
#include "compiler/planner/explain/breakdown.h"
#include "compiler/planner/explain/decided_model.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/planner/search/space/settings.h"
#include "compiler/planner/split/laid_axes.h"
#include "test/unit/planner/problem_builder.h"
#include <gmock/gmock.h>
#include <map>
#include <set>

namespace cleave::planner {
namespace {

using testing::gpt;
using testing::ProblemBuilder;

Result<Decision> decide(const Problem &problem, const std::string &cluster, const SplitFlags &flags) {
  Result<Cluster> machines = parseCluster(cluster);
  Result<Constraints> constraints = parseConstraints(flags, *machines);
  if (!constraints) return constraints.status();
  return solve(problem, *machines, *constraints, {.alternatives = false});
}

std::string layoutOf(const Decision &decision, const std::string &parameter) {
  const ParameterDecision *found = testing::findParameter(decision, parameter);
  return found ? found->parameter.str() : "none";
}

std::string splitOf(const Decision &decision, const std::string &node) {
  const NodeDecision *found = testing::findNode(decision, node);
  if (!found) return "none";
  return dist::Sharding{found->split, {}, {}}.str();
}

TEST(LaidAxes, OnAPlaneEveryWeightLiesOverRowsAndColumns) {
  Result<Decision> decision = decide(gpt({8, 64, 128, 8, 2, 512}), "cpu:4", {.like = "2d"});
  ASSERT_TRUE(decision) << decision.status().message();
  EXPECT_EQ(decision->mesh.str(), "dp=1,tp_row=2,tp_col=2");
  EXPECT_EQ(layoutOf(*decision, "layers.0/q.weight"), "[{tp_row},{tp_col},{}]"); // heads, not their width
  EXPECT_EQ(layoutOf(*decision, "layers.0/proj.weight"), "[{},{tp_row},{tp_col}]");
  EXPECT_EQ(layoutOf(*decision, "layers.1/up.weight"), "[{tp_row},{tp_col}]");
  EXPECT_EQ(layoutOf(*decision, "layers.1/down.weight"), "[{tp_row},{tp_col}]");
  // Factors b s h f: columns of the result; the summed-over one is gathered.
  EXPECT_EQ(splitOf(*decision, "layers.0/up"), "[{tp_row},{},{},{tp_col}]");
  EXPECT_EQ(splitOf(*decision, "layers.0/down"), "[{tp_row},{},{},{tp_col}]");
  EXPECT_EQ(splitOf(*decision, "layers.0/scores"), "[{tp_row},{},{tp_col},{},{}]"); // b s n d t: heads
  EXPECT_EQ(splitOf(*decision, "layers.0/ln2/mean"), "[{tp_row},{},{tp_col}]");     // summed up over the columns
}

TEST(LaidAxes, ADeeperPlaneSplitsSamplesMoreAndWeightsNot) {
  Result<Decision> decision = decide(gpt({8, 64, 128, 8, 2, 512}), "cpu:8", {.like = "2.5d"});
  ASSERT_TRUE(decision) << decision.status().message();
  EXPECT_EQ(decision->mesh.str(), "dp=1,tp_depth=2,tp_row=2,tp_col=2");
  EXPECT_EQ(layoutOf(*decision, "layers.1/up.weight"), "[{tp_row},{tp_col}]");
  EXPECT_EQ(splitOf(*decision, "layers.0/up"), "[{tp_depth,tp_row},{},{},{tp_col}]");
}

TEST(LaidAxes, InACubeProductsExchangeRowsAndColumns) {
  Result<Decision> decision = decide(gpt({8, 64, 128, 8, 2, 512}), "cpu:8", {.like = "3d"});
  ASSERT_TRUE(decision) << decision.status().message();
  EXPECT_EQ(layoutOf(*decision, "layers.0/q.weight"), "[{tp_row},{tp_col},{tp_depth}]");
  EXPECT_EQ(layoutOf(*decision, "layers.0/proj.weight"), "[{tp_col},{tp_depth},{tp_row}]");
  EXPECT_EQ(splitOf(*decision, "layers.0/up"), "[{tp_depth},{},{tp_row},{tp_col}]");
  EXPECT_EQ(splitOf(*decision, "layers.0/gelu"), "[{tp_depth,tp_row},{},{tp_col}]");
  EXPECT_EQ(splitOf(*decision, "layers.0/down"), "[{tp_depth},{},{tp_col},{tp_row}]");
  EXPECT_EQ(splitOf(*decision, "layers.0/mlp/residual"), "[{tp_depth,tp_col},{},{tp_row}]");
}

TEST(LaidAxes, DispatchedExpertsExchangeSamplesForExperts) {
  ProblemBuilder b("moe", 8);
  int x = b.op("in", "Contract", "bsk,kd->bsd", {b.input("x", {8, 6, 16}), b.parameter("in.weight", {16, 16})});
  int gate = b.op("router", "Contract", "bsd,de->bse", {x, b.parameter("router.weight", {16, 4})});
  int mask = b.op("mask", "Mul", "bse,c->bsec", {gate, b.parameter("places", {6})});
  int y = b.op("dispatch", "Contract", "bsec,bsd->ebcd", {mask, x});
  y = b.op("up", "Contract", "ebcd,edf->ebcf", {y, b.parameter("up.weight", {4, 16, 32})});
  y = b.op("act", "Relu", "ebcf->ebcf", {y});
  y = b.op("down", "Contract", "ebcf,efd->ebcd", {y, b.parameter("down.weight", {4, 32, 16})});
  y = b.op("combine", "Contract", "bsec,ebcd->bsd", {mask, y});
  b.op("loss", "Sum", "bsd->", {y});
  Result<Decision> decision = decide(b.problem, "cpu:4", {.mesh = "ep=4"});
  ASSERT_TRUE(decision) << decision.status().message();
  EXPECT_EQ(layoutOf(*decision, "up.weight"), "[{ep},{},{}]");
  EXPECT_EQ(layoutOf(*decision, "router.weight"), "[{},{}]");
  EXPECT_EQ(splitOf(*decision, "dispatch"), "[{ep},{},{},{},{}]"); // b s e c d
  EXPECT_EQ(splitOf(*decision, "up"), "[{ep},{},{},{},{}]");       // e b c d f
  EXPECT_EQ(splitOf(*decision, "act"), "[{ep},{},{},{}]");
  EXPECT_EQ(splitOf(*decision, "combine"), "[{ep},{},{},{},{}]"); // b s e c d
}

TEST(LaidAxes, ExpertsThatComputeAllTokensAreSummedUp) {
  ProblemBuilder b("moe", 8);
  int x = b.op("in", "Contract", "bsk,kd->bsd", {b.input("x", {8, 6, 16}), b.parameter("in.weight", {16, 16})});
  int y = b.op("up", "Contract", "bsd,edf->bsef", {x, b.parameter("up.weight", {4, 16, 32})});
  y = b.op("act", "Relu", "bsef->bsef", {y});
  y = b.op("down", "Contract", "bsef,efd->bsed", {y, b.parameter("down.weight", {4, 32, 16})});
  y = b.op("mix", "Sum", "bsed->bsd", {y});
  b.op("loss", "Sum", "bsd->", {y});
  Result<Decision> decision = decide(b.problem, "cpu:4", {.mesh = "dp=2,ep=2"});
  ASSERT_TRUE(decision) << decision.status().message();
  EXPECT_EQ(splitOf(*decision, "in"), "[{dp,ep},{},{},{}]");
  EXPECT_EQ(splitOf(*decision, "up"), "[{dp},{},{},{ep},{}]"); // b s d e f
  EXPECT_EQ(splitOf(*decision, "mix"), "[{dp},{},{ep},{}]");   // b s e d: partial
}

// Expert layers between products of all tokens; large experts, so that not to sum their gradients pays.
Problem experts(int64_t wide) {
  ProblemBuilder b("moe", 8);
  int x = b.op("in", "Contract", "bsk,kd->bsd", {b.input("x", {8, 64, 64}), b.parameter("in.weight", {64, 64})});
  int gate = b.op("router", "Contract", "bsd,de->bse", {x, b.parameter("router.weight", {64, 4})});
  int mask = b.op("mask", "Mul", "bse,c->bsec", {gate, b.parameter("places", {8})});
  int y = b.op("dispatch", "Contract", "bsec,bsd->ebcd", {mask, x});
  y = b.op("up", "Contract", "ebcd,edf->ebcf", {y, b.parameter("up.weight", {4, 64, wide})});
  y = b.op("act", "Relu", "ebcf->ebcf", {y});
  y = b.op("down", "Contract", "ebcf,efd->ebcd", {y, b.parameter("down.weight", {4, wide, 64})});
  y = b.op("combine", "Contract", "bsec,ebcd->bsd", {mask, y});
  b.op("loss", "Sum", "bsd->", {y});
  return b.problem;
}

// x[n, (g i), s] * w[(g o), i, k] -> [n, (g o), s]
Problem groupedConvolution(int64_t groups, int64_t in, int64_t out) {
  ProblemBuilder b("convolution", 8);
  const int y = b.op("conv", "Contract", "ngis,goik->ngos",
                     {b.input("x", {8, groups, in, 32}), b.parameter("w", {groups, out, in, 3})});
  // As a convolution has it: groups are no dimension of their own.
  Node &conv = b.problem.nodes.back();
  auto merge = [&](int tensor, dist::TensorFactors &factors, size_t dim) {
    factors[dim].insert(factors[dim].end(), factors[dim + 1].begin(), factors[dim + 1].end());
    factors.erase(factors.begin() + int64_t(dim) + 1);
    std::vector<int64_t> &dims = b.problem.tensors[size_t(tensor)].dims;
    dims[dim] *= dims[dim + 1];
    dims.erase(dims.begin() + int64_t(dim) + 1);
  };
  merge(conv.operands[0], conv.rule.operands[0], 1);
  merge(conv.operands[1], conv.rule.operands[1], 0);
  merge(y, conv.rule.results[0], 1);
  b.op("loss", "Sum", "ncs->", {y});
  return b.problem;
}

TEST(LaidAxes, GroupsOfAConvolutionAreNoExperts) {
  for (auto [in, out] : {std::pair(1, 1), std::pair(1, 4), std::pair(4, 4)}) {
    Problem problem = groupedConvolution(16, in, out);
    ASSERT_TRUE(problem.check()) << problem.check().message();
    EXPECT_TRUE(expertCounts(problem).empty()) << in << " " << out;
  }
}

TEST(LaidAxes, TheSearchItselfPutsExpertsOnAnAxis) {
  Problem problem = experts(4096);
  EXPECT_EQ(expertCounts(problem), std::vector<int64_t>{4});
  EXPECT_TRUE(expertCounts(gpt({8, 64, 128, 8, 2, 512})).empty());
  Constraints constraints;
  constraints.tp = constraints.pp = 1;
  Cluster cluster = *parseCluster("a100-80g:4");
  std::vector<std::string> meshes;
  ProblemFacts facts = gatherFacts(problem, cluster.device, constraints);
  for (const Setting &setting : openSettings(problem, facts, cluster, constraints, true))
    if (setting.microbatches == 1) meshes.push_back(setting.mesh().str());
  EXPECT_THAT(meshes, ::testing::UnorderedElementsAre("dp=4,tp=1", "dp=2,ep=2,tp=1", "dp=1,ep=4,tp=1"));
  Result<Decision> decision = decide(problem, "cpu:4", {.mesh = "tp=1,pp=1", .microbatches = "1"});
  ASSERT_TRUE(decision) << decision.status().message();
  EXPECT_EQ(decision->mesh.axisSize("ep"), 4);
  EXPECT_EQ(layoutOf(*decision, "up.weight"), "[{ep},{},{}]");
}

// Every parameter but the stacked ones is summed over both axes at once; those over the batch axis only.
TEST(LaidAxes, GradientsAreSummedOverTheDevicesThatHaveTheSameExperts) {
  Problem problem = experts(256);
  Result<Decision> decision =
      decide(problem, "a100-80g:4", {.mesh = "dp=2,ep=2,tp=1", .zero = "0", .microbatches = "1"});
  ASSERT_TRUE(decision) << decision.status().message();
  std::map<std::string, double> bytes;
  const Cluster cluster = *parseCluster("a100-80g:4");
  Result<DecidedModel> decided = decidedModel(problem, cluster, *decision);
  ASSERT_TRUE(decided) << decided.status().message();
  for (const CollectiveTotal &one : breakdown(*decided).collectives)
    if (one.why == "gradients are summed over the batch") bytes[dist::Sharding{{one.axes}, {}, {}}.str()] += one.bytes;
  EXPECT_DOUBLE_EQ(bytes["[{dp,ep}]"], 4 * (64 * 64 + 64 * 4 + 8));
  EXPECT_DOUBLE_EQ(bytes["[{dp}]"], 4 * 2 * (4 * 64 * 256) / 2);
}

// The part of a parameter's gradient that a grid exchanges is cut as that parameter's ZeRO stage says, not as the
// highest does.
TEST(LaidAxes, AGradientThatIsNotCutIsExchangedWhole) {
  const Problem problem = gpt({8, 64, 128, 8, 2, 512});
  const Cluster cluster = *parseCluster("cpu:16");
  Result<Decision> decision = decide(problem, "cpu:16", {.mesh = "dp=2", .microbatches = "1", .like = "3d"});
  ASSERT_TRUE(decision) << decision.status().message();
  auto exchanged = [](const DecidedModel &of) {
    double seconds = 0;
    for (size_t v = 0; v < of.model.variables.size(); ++v)
      if (const Variable &variable = of.model.variables[v]; !variable.isHome)
        seconds += exchangePrice(of.model, variable, size_t(of.choice[v])).communication;
    return seconds;
  };
  const DecidedModel sharded = *decidedModel(problem, cluster, *decision);
  DecidedModel plain = sharded; // with ZeRO 0 for all
  plain.model.setting.zero = 0;
  const double less = exchanged(plain) - exchanged(sharded);
  EXPECT_GT(less, 1e-3 * exchanged(plain));
  std::set<std::string> all;
  double each = 0;
  for (const Tensor &tensor : problem.tensors) {
    if (tensor.kind != TensorKind::Parameter) continue;
    all.insert(tensor.name);
    each += exchanged(sharded.withLowerZero(0, {tensor.name})) - exchanged(sharded);
  }
  EXPECT_NEAR(exchanged(sharded.withLowerZero(0, all)), exchanged(plain), 1e-9 * exchanged(plain));
  EXPECT_NEAR(each, less, 1e-9 * exchanged(plain));
}

TEST(LaidAxes, WhatFormsNoGridOrHasNoExpertsIsRefused) {
  Problem problem = gpt({8, 64, 128, 8, 2, 512});
  Result<Decision> decision = decide(problem, "cpu:8", {.mesh = "tp=8", .like = "2d"});
  ASSERT_FALSE(decision);
  EXPECT_THAT(decision.status().message(), ::testing::HasSubstr("needs tp = q*q"));
  decision = decide(problem, "cpu:4", {.mesh = "ep=4"});
  ASSERT_FALSE(decision);
  EXPECT_THAT(decision.status().message(), ::testing::HasSubstr("[experts, in, out]"));
}

} // namespace
} // namespace cleave::planner
