// The work that recomputation does again, of a GPT whose products can be counted by hand.
#include "compiler/planner/facts/activations_again.h"
#include "compiler/planner/facts/fusion.h"
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

// x, of which a norm makes n for a product, and this one's result y, of which a gate makes g for the next. The backward
// pass reads the middle of both kernels, too.
struct NormAndGate {
  ProblemBuilder b{"norm-and-gate", 64};
  int x, n, g, rows, centred, y, e;
  explicit NormAndGate(bool isShared = false) {
    x = b.op("enter", "Contract", "bk,kn->bn", {b.input("in", {64, 512}), b.parameter("a", {512, 512})});
    rows = b.op("mean", "ReduceSum", "bn->b", {x});
    centred = b.op("centred", "Sub", "bn,b->bn", {x, rows});
    n = b.op("scaled", "Mul", "bn,n->bn", {centred, b.parameter("scale", {512})});
    y = b.op("up", "Contract", "bk,kn->bn", {n, b.parameter("w", {512, 1024})});
    e = b.op("erf", "Erf", "bn->bn", {y});
    g = b.op("gate", "Mul", "bn,bn->bn", {e, y});
    int z = b.op("down", "Contract", "bk,kn->bn", {g, b.parameter("v", {1024, 512})});
    if (isShared) z = b.op("residual", "Add", "bn,bn->bn", {n, z});
    b.op("loss", "Sum", "bn->", {z});
    for (int tensor : {x, rows, centred, n, y, e, g}) b.problem.tensors[size_t(tensor)].saved = true;
  }
  // Tensors that are computed again, where all operations are one segment but for the last `others`.
  std::vector<int> tensorsAgain(int others = 0) {
    const Graph graph(b.problem);
    const Fusion fusion = findFusion(graph, {});
    std::vector<int> segmentOf(b.problem.nodes.size(), 0);
    std::fill(segmentOf.end() - others, segmentOf.end(), -1);
    const auto again = findActivationsAgain(graph, fusion.kept, fusion.madeAgain, segmentOf);
    std::vector<int> found;
    for (size_t i = 0; i < again.size(); ++i)
      if (again[i].isAgain) found.push_back(b.problem.nodes[i].results[0]);
    return found;
  }
};

// The results of norm and gate; the sum of rows, x and y stay.
TEST(Recomputation, ActivationsAreMadeAgainForProductsFromWhatIsKept) {
  NormAndGate model;
  EXPECT_EQ(model.tensorsAgain(), (std::vector<int>{model.n, model.g}));
  // One that another segment reads stays: it crosses.
  EXPECT_EQ(NormAndGate(true).tensorsAgain(2), (std::vector<int>{model.g}));
  // Where y is not kept, nothing is there that the gate's result could be made from.
  model.b.problem.tensors[size_t(model.y)].saved = model.b.problem.tensors[size_t(model.e)].saved = false;
  EXPECT_EQ(model.tensorsAgain(), (std::vector<int>{model.n}));
}

// A kernel reads x and the sums of rows and writes n, or reads y and writes g: of 64 x 512 and of 64 x 1024 elements.
TEST(Recomputation, ActivationsCostTheirTraffic) {
  NormAndGate model;
  const Graph graph(model.b.problem);
  const Fusion fusion = findFusion(graph, {});
  const std::vector<int> segmentOf(model.b.problem.nodes.size(), 0);
  const auto again = findActivationsAgain(graph, fusion.kept, fusion.madeAgain, segmentOf);
  auto at = [&](int tensor) -> const ActivationsAgain & { return again[size_t(graph.producers[size_t(tensor)])]; };
  EXPECT_EQ(std::set<int>(at(model.n).sources.begin(), at(model.n).sources.end()),
            (std::set<int>{model.x, model.rows}));
  EXPECT_EQ(at(model.g).sources, (std::vector<int>{model.y}));
  EXPECT_TRUE(at(model.centred).computes && at(model.e).computes);
  EXPECT_FALSE(at(model.centred).isAgain || at(model.e).isAgain);
  EXPECT_FALSE(at(model.rows).computes || at(model.x).computes);
}

// Layers of growing width repeat nothing, and several share a segment. Whatever the memory leaves room for, of a
// segment all units are computed again or none: else what one hands the next would be neither kept nor made again.
TEST(Recomputation, UnitsOfOneSegmentAreComputedAgainTogether) {
  ProblemBuilder b("pyramid", 1024);
  int x = b.input("x", {1024, 32});
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
