// Gradients that wait and those that a halved backward pass holds, counted by hand; slots of a schedule's stages.
#include "compiler/planner/facts/gradients.h"
#include "compiler/planner/pipeline/schedule_profile.h"
#include "compiler/planner/split/pricing.h"
#include "test/unit/planner/problem_builder.h"
#include <gtest/gtest.h>
#include <numeric>

namespace cleave::planner {
namespace {

using testing::ProblemBuilder;

// Each node a kernel.
std::vector<int> ofItself(const Problem &problem) {
  std::vector<int> kernels(problem.nodes.size());
  std::iota(kernels.begin(), kernels.end(), 0);
  return kernels;
}

// h = x e;  y = h w;  z = y + b;  r = h + z;  o = r v: a branch with a bias around which h goes.
struct Branch {
  ProblemBuilder b{"branch", 16};
  int x = b.input("x", {16, 64});
  int e = b.parameter("e", {64, 64}), w = b.parameter("w", {64, 64}), bias = b.parameter("b", {64}),
      v = b.parameter("v", {64, 8});
  int h = b.op("in", "Contract", "bk,kn->bn", {x, e});
  int y = b.op("up", "Contract", "bk,kn->bn", {h, w});
  int z = b.op("bias", "Add", "bn,n->bn", {y, bias});
  int r = b.op("residual", "Add", "bn,bn->bn", {h, z});
  int o = b.op("out", "Contract", "bk,kn->bn", {r, v});
  int loss = b.op("loss", "Sum", "bn->", {o});
};

TEST(Gradients, WaitWhileABranchIsComputed) {
  Branch branch;
  const Problem &problem = branch.b.problem;
  const WaitingGradients waiting =
      waitingGradients(Graph(problem), std::vector<bool>(problem.tensors.size(), true), ofItself(problem));
  const std::vector<double> past = waiting.past([&](int tensor) { return problem.tensors[size_t(tensor)].bytes(); });
  const double one = 16 * 64 * 4;
  ASSERT_EQ(past.size(), problem.nodes.size());
  // The gradient of h waits past the bias; that of z, which is r's too and y's, is what "bias" and "up" work on.
  EXPECT_EQ(past[0], 0);
  EXPECT_EQ(past[1], 0);
  EXPECT_TRUE(waiting.waitsForOperand[1][0]); // what "up" makes is added to it
  EXPECT_EQ(past[2], one);
  EXPECT_TRUE(waiting.waitsForOperand[2][0]);
  EXPECT_EQ(past[4], 0);
}

// c = (h, y): h's gradient lies in c's, all of which waits while y's is made: of it, "up" counts h's part itself.
TEST(Gradients, OfAConcatenationWaitsAsAWhole) {
  ProblemBuilder b("skip", 16);
  const int h = b.op("in", "Contract", "bk,kn->bn", {b.input("x", {16, 64}), b.parameter("e", {64, 64})});
  const int y = b.op("up", "Contract", "bk,kn->bn", {h, b.parameter("w", {64, 64})});
  const int c = b.op("join", "Concat", "bn,bn->bn", {h, y});
  b.op("loss", "Sum", "bn->", {c});
  b.problem.tensors[size_t(c)].dims = {16, 128};
  const WaitingGradients waiting =
      waitingGradients(Graph(b.problem), std::vector<bool>(b.problem.tensors.size(), true), ofItself(b.problem));
  EXPECT_EQ(waiting.past([&](int tensor) { return b.problem.tensors[size_t(tensor)].bytes(); })[1],
            4.0 * 16 * 128 - 4.0 * 16 * 64);
}

// A weight in 16 bits is cut before it is used: gradients of its parts are sums in 32 bits, those of activations not.
TEST(Gradients, OfWeightsInLowPrecisionAreWide) {
  ProblemBuilder b("low", 16);
  const int x = b.input("x", {16, 64}), w = b.parameter("w", {64, 64});
  const int part = b.op("part", "Slice", "kn->kn", {w}), y = b.op("up", "Contract", "bk,kn->bn", {x, part});
  for (int tensor : {x, w, part, y}) b.problem.tensors[size_t(tensor)].elementBytes = 2;
  const std::vector<double> ratios = gradientRatios(Graph(b.problem));
  EXPECT_EQ(ratios[size_t(w)], 2);
  EXPECT_EQ(ratios[size_t(part)], 2);
  EXPECT_EQ(ratios[size_t(y)], 1);
}

// h = x e;  q = h u;  k = h v;  c = h w: the terms of h's gradient that c and k make wait while q makes its own.
TEST(Gradients, AllTermsOfAGradientWait) {
  ProblemBuilder b("terms", 16);
  int h = b.op("in", "Contract", "bk,kn->bn", {b.input("x", {16, 64}), b.parameter("e", {64, 64})});
  int q = b.op("q", "Contract", "bk,kn->bn", {h, b.parameter("u", {64, 64})});
  int k = b.op("k", "Contract", "bk,kn->bn", {h, b.parameter("v", {64, 64})});
  int c = b.op("c", "Contract", "bk,kn->bn", {h, b.parameter("w", {64, 64})});
  int both = b.op("both", "Mul", "bn,bn->bn", {q, k});
  b.op("loss", "Sum", "bn->", {b.op("all", "Mul", "bn,bn->bn", {both, c})});
  const Problem &problem = b.problem;
  auto past = [&](const std::vector<int> &kernels) {
    const WaitingGradients waiting =
        waitingGradients(Graph(problem), std::vector<bool>(problem.tensors.size(), true), kernels);
    return waiting.past([&](int tensor) { return problem.tensors[size_t(tensor)].bytes(); })[1];
  };
  const double one = 16 * 64 * 4;
  // Past "q": two terms of h's and what waits of k's and c's gradients.
  std::vector<int> kernels = ofItself(problem);
  const double apart = past(kernels);
  kernels[3] = kernels[2]; // what one kernel reads twice has one term
  EXPECT_EQ(apart - past(kernels), one);
}

// h = x e;  t = exp p;  y = h w;  z = y t;  r = h + z: h's gradient, of a device's own samples, waits past the table t.
TEST(Gradients, WaitPastATableInPartsThatTheTableDoesNotHave) {
  for (bool trains : {true, false}) {
    ProblemBuilder b("table", 16);
    int h = b.op("in", "Contract", "bk,kn->bn", {b.input("x", {16, 64}), b.parameter("e", {64, 64})});
    int places = b.parameter("p", {64});
    b.problem.tensors[size_t(places)].trainable = trains;
    int table = b.op("table", "Exp", "n->n", {places});
    int y = b.op("up", "Contract", "bk,kn->bn", {h, b.parameter("w", {64, 64})});
    int r = b.op("residual", "Add", "bn,bn->bn", {h, b.op("bias", "Mul", "bn,n->bn", {y, table})});
    b.op("loss", "Sum", "bn->", {b.op("out", "Contract", "bk,kn->bn", {r, b.parameter("v", {64, 8})})});
    ProblemFacts facts = gatherFacts(b.problem, Device(), {});
    const Cluster cluster = *parseCluster("a100-80g:4");
    auto workspace = [&](int64_t dp, int64_t microbatches) {
      Setting setting;
      setting.dp = dp;
      setting.microbatches = microbatches;
      SplitModel model = *buildModel(b.problem, facts, cluster, {}, setting);
      return nodeWorkspace(model, model.variables[size_t(model.variableOfNode[1])], 0);
    };
    const double waits = trains ? 16 * 64 * 4 : 0; // a table that is not trained has no backward pass
    EXPECT_EQ(workspace(1, 1) - workspace(2, 1), waits / 2) << trains;
    EXPECT_EQ(workspace(1, 2) - workspace(2, 4), waits / 2 - waits / 8) << trains;
  }
}

TEST(Gradients, AHalvedBackwardPassHoldsEachOnce) {
  Branch branch;
  std::vector<bool> holds;
  for (const HeldForWeights &held : heldForWeights(Graph(branch.b.problem), std::vector<bool>(16, true)))
    holds.push_back(held.gradient);
  // For e that of h, for w and b that of r (as y's and z's are the same), for v that of o.
  EXPECT_EQ(holds, (std::vector<bool>{true, true, false, false, true, false}));
}

// A weight that is laid out otherwise before it is multiplied with, as in a recurrence; a scale that is
// multiplied with what the backward pass makes again.
TEST(Gradients, AHalvedBackwardPassHoldsForWeightsLaidOutOtherwise) {
  ProblemBuilder b("laid out", 16);
  int w = b.op("turned", "Transpose", "nk->kn", {b.parameter("w", {64, 64})});
  int h = b.op("in", "Contract", "bk,kn->bn", {b.input("x", {16, 64}), w});
  int normal = b.op("normal", "Exp", "bn->bn", {h});
  int scale = b.op("negative", "Neg", "n->n", {b.parameter("scale", {64})});
  b.op("loss", "Sum", "bn->", {b.op("scaled", "Mul", "bn,n->bn", {normal, scale})});
  const Problem &problem = b.problem;
  std::vector<bool> kept(problem.tensors.size(), false);
  std::vector<HeldForWeights> held = heldForWeights(Graph(problem), kept);
  std::vector<bool> holds;
  for (const HeldForWeights &one : held) holds.push_back(one.gradient);
  EXPECT_EQ(holds, (std::vector<bool>{false, true, false, false, true, false})); // not those of the weights themselves
  EXPECT_EQ(held[4].operand, normal);
  EXPECT_EQ(held[1].operand, -1); // inputs are there
  kept[size_t(normal)] = true;
  EXPECT_EQ(heldForWeights(Graph(problem), kept)[4].operand, -1);
}

TEST(Slots, OfEachStageForItself) {
  const int ranks = 4;
  const int64_t microbatches = 16;
  for (std::string kind : {"1f1b", "zb-h1", "zb-h2", "gpipe", "interleaved:2", "looped-bfs:2", "zb-v", "dualpipev"}) {
    auto table = makeSchedule(kind, ranks, microbatches, {});
    ASSERT_TRUE(table) << kind;
    std::vector<int64_t> slots = peakSlots(*table), live = peakLive(*table, ActionKind::BackwardWeight);
    ASSERT_EQ(int(slots.size()), table->stages) << kind;
    std::vector<int64_t> apart(ranks, 0);
    for (int s = 0; s < table->stages; ++s) apart[size_t(table->rankOfStage[size_t(s)])] += slots[size_t(s)];
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_GE(apart[size_t(rank)], live[size_t(rank)]) << kind; // peaks come at different times
      if (table->stages == ranks) EXPECT_EQ(apart[size_t(rank)], live[size_t(rank)]) << kind;
    }
    const ScheduleProfile *profile = scheduleProfile(kind, ranks, microbatches);
    ASSERT_TRUE(profile) << kind;
    EXPECT_EQ(profile->live, std::vector<double>(slots.begin(), slots.end())) << kind;
  }
  // All forwards come first: more microbatches are more slots, however many they are.
  EXPECT_EQ(scheduleProfile("looped-bfs:2", ranks, 100)->live, std::vector<double>(8, 100));
}

} // namespace
} // namespace cleave::planner
