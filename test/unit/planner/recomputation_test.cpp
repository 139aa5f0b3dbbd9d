// The work that recomputation does again, of a GPT whose products can be counted by hand.
#include "test/unit/planner/first_split.h"
#include "test/unit/planner/problem_builder.h"
#include <gtest/gtest.h>
#include <map>
#include <set>

using namespace cleave;
using namespace cleave::planner;
using namespace cleave::planner::testing;

namespace {

// FLOP of the products of a forward pass that `full` computes again.
double flopsAgain(const Problem &problem, const Constraints &constraints) {
  const ProblemFacts facts = gatherFacts(problem, Device(), constraints);
  double flops = 0;
  for (const Variable &variable : facts.structure->variables)
    if (!variable.isHome && variable.inSegment && !problem.nodes[size_t(variable.index)].cheap)
      flops += double(variable.count) * problem.nodes[size_t(variable.index)].flops;
  return flops;
}

// The last product's 8 of a layer's 24 b s h^2 FLOP in products with weights are not needed: its result is added to the
// residual stream, which is kept. Scores and weighing are 4 b s^2 h.
TEST(Recomputation, LeavesOutWhatNothingReadsAgain) {
  const double b = 2, s = 16, h = 32, layers = 3;
  const Problem problem = gpt({2, 16, 32, 4, 3, 64});
  EXPECT_DOUBLE_EQ(flopsAgain(problem, {}), layers * (16 * b * s * h * h + 4 * b * s * s * h));
  Constraints all;
  all.recomputesAll = true;
  EXPECT_DOUBLE_EQ(flopsAgain(problem, all), layers * (24 * b * s * h * h + 4 * b * s * s * h));
}

// Layers of growing width repeat nothing, and several share a segment. Whatever the memory leaves room for, of a
// segment all units are computed again or none: else what one hands the next would be neither kept nor made again.
TEST(Recomputation, UnitsOfOneSegmentAreComputedAgainTogether) {
  ProblemBuilder b("pyramid", 64);
  int x = b.input("x", {64, 32});
  int64_t width = 32;
  for (int i = 0; i < 12; ++i, width += 8) {
    const std::string at = std::to_string(i);
    x = b.op("product" + at, "Contract", "bk,kn->bn", {x, b.parameter("w" + at, {width, width + 8})});
    x = b.op("exp" + at, "Exp", "bn->bn", {x});
    b.problem.tensors[size_t(x)].saved = true;
  }
  b.op("loss", "Sum", "bn->", {x});
  const ProblemFacts facts = gatherFacts(b.problem, Device(), {});
  const Cluster cluster = *parseCluster("cpu:1");
  FirstSplit split(*buildModel(b.problem, facts, cluster, {}, Setting{}));
  const SplitModel &model = split.model;
  StageProblem &stages = split.stages;
  stages.allowed = {Recompute::None, Recompute::Full};
  stages.recompute = Recompute::None;
  const double all = planCut(stages, {0}).bytes;
  stages.recompute = Recompute::Full;
  const double least = planCut(stages, {0}).bytes;
  stages.recompute.reset();
  bool sharesSegment = false, isMixed = false;
  for (int part = 0; part <= 20; ++part) {
    stages.memoryLimit = least + (all - least) * part / 20;
    const StagePlan plan = planCut(stages, {0});
    std::map<int, std::set<Recompute>> modes; // by segment
    std::map<int, std::set<int>> units;
    for (size_t i = 0; i < b.problem.nodes.size(); ++i)
      if (const int segment = model.segments.segmentOf[i]; segment >= 0) {
        modes[segment].insert(plan.recompute[size_t(model.layout->unitOfNode[i])]);
        units[segment].insert(model.layout->unitOfNode[i]);
      }
    for (const auto &[segment, ways] : modes) EXPECT_EQ(ways.size(), 1U) << part << " segment " << segment;
    for (const auto &[segment, of] : units) sharesSegment |= of.size() > 1;
    isMixed |= std::set<Recompute>(plan.recompute.begin(), plan.recompute.end()).size() > 1;
    const PlanEvaluation evaluation = evaluatePlan(stages, plan);
    EXPECT_EQ(evaluation.fits, plan.fits) << part;
  }
  EXPECT_TRUE(sharesSegment);
  EXPECT_TRUE(isMixed);
}

} // namespace
