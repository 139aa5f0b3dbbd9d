#include "compiler/planner/problem/problem.h"
#include "compiler/planner/search/driver/search.h"
#include "test/unit/planner/problem_builder.h"
#include <gmock/gmock.h>
#include <random>

namespace cleave::planner {
namespace {

using testing::gpt;
using ::testing::HasSubstr;
using testing::mlp;

TEST(Problem, TextReadsBack) {
  for (Problem problem : {mlp(32, 64, 128, 10), gpt({8, 64, 128, 8, 3, 512})}) {
    for (Tensor &tensor : problem.tensors)
      if (tensor.trainable) tensor.masterBytes = 4, tensor.meansBytes = 0.25;
    ASSERT_TRUE(problem.check()) << problem.check().message();
    auto again = Problem::parse(problem.text(), "p.txt");
    ASSERT_TRUE(again) << again.status().message();
    EXPECT_EQ(again->text(), problem.text());
  }
}

TEST(Problem, ErrorsNameFileAndLine) {
  auto message = [](const std::string &text) { return Problem::parse(text, "p.txt").status().message(); };
  EXPECT_THAT(message(""), HasSubstr("p.txt:1"));
  EXPECT_THAT(message("cleave-problem 9\n"), HasSubstr("reads version 2"));
  EXPECT_THAT(message("cleave-problem 2\ntensor 1 input \"x\" 4 [2]\n"),
              HasSubstr("p.txt:2: tensor 1 stands where 0 is due"));
  EXPECT_THAT(message("cleave-problem 2\ntensor 0 thing \"x\" 4 [2]\n"), HasSubstr("none of parameter, input"));
  EXPECT_THAT(message("cleave-problem 2\ntensor 0 input \"x\" 4 [2\n"), HasSubstr("no list"));
  EXPECT_THAT(message("cleave-problem 2\ntensor 0 input \"x 4 [2]\n"), HasSubstr("closing quote"));
  EXPECT_THAT(message("cleave-problem 2\nfactors 3\n"), HasSubstr("outside a node"));
  EXPECT_THAT(message("cleave-problem 2\nnode \"n\" \"Add\" fast\n"), HasSubstr("unknown word 'fast'"));
  EXPECT_THAT(message("cleave-problem 2\nnode \"n\" \"Add\"\n  reads 7 0\n  factors 2\n"), HasSubstr("tensor 7 of 0"));
}

// A mean over the samples that each sample is then compared with; the loss alone is no such thing.
TEST(Problem, BatchStatisticsMixSamples) {
  for (const Problem &problem : {mlp(32, 64, 128, 10), gpt({8, 64, 128, 8, 3, 512})})
    EXPECT_EQ(problem.samplesMeetAt(), "") << problem.name;
  for (bool isBack : {false, true}) {
    testing::ProblemBuilder b("normalized", 32);
    int x = b.input("x", {32, 64}), mean = b.op("mean", "ReduceSum", "bc->c", {x});
    if (isBack) b.op("centered", "Sub", "bc,c->bc", {x, mean});
    b.op("loss", "ReduceSum", "c->", {mean});
    EXPECT_EQ(b.problem.samplesMeetAt(), isBack ? "centered" : "");
    SplitFlags flags{.mesh = "dp=2,pp=1"};
    Result<Cluster> cluster = parseCluster("cpu:2");
    Result<Constraints> constraints = parseConstraints(flags, *cluster);
    Result<Decision> decision = solve(b.problem, *cluster, *constraints, {.alternatives = false});
    ASSERT_TRUE(decision) << decision.status().message();
    EXPECT_EQ(decision->notes.size(), isBack ? 1u : 0u);
  }
}

TEST(Problem, CheckFindsWhatIsWrong) {
  Problem good = mlp(32, 64, 128, 10);
  auto broken = [&](auto change) {
    Problem problem = good;
    change(problem);
    return problem.check().message();
  };
  EXPECT_EQ(good.check().message(), "");
  EXPECT_THAT(broken([](Problem &p) { std::swap(p.nodes[0], p.nodes[1]); }), HasSubstr("before any node makes it"));
  EXPECT_THAT(broken([](Problem &p) { p.nodes[0].rule.factors[0].size = 33; }), HasSubstr("its factors make 33"));
  EXPECT_THAT(broken([](Problem &p) { p.nodes[1].name = p.nodes[0].name; }), HasSubstr("two nodes are called"));
  EXPECT_THAT(broken([](Problem &p) { p.samples = 5; }), HasSubstr("multiple of the samples"));
  EXPECT_THAT(broken([](Problem &p) { p.tensors[1].dims[0] = int64_t(1) << 60; }), HasSubstr("are not planned for"));
  EXPECT_THAT(broken([](Problem &p) { p.nodes[0].operands.pop_back(); }), HasSubstr("its rule has 2 operands"));
  EXPECT_THAT(broken([](Problem &p) { p.nodes[0].rule.operands[0][0] = {99}; }), HasSubstr("names factor 99"));
}

TEST(Problem, SurvivesMutatedText) {
  std::string text = mlp(32, 64, 128, 10).text();
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string mutated = text;
    for (int edits = 1 + int(random() % 3); edits > 0; --edits) {
      size_t at = random() % mutated.size();
      if (random() % 2)
        mutated[at] = "0129 -.:[]\"x\n"[random() % 13];
      else
        mutated.erase(at, 1 + random() % 8);
    }
    auto problem = Problem::parse(mutated, "m"); // refused or sound: never a crash
    if (problem) EXPECT_TRUE(problem->check());
  }
}

TEST(Problem, TheSampleDimensionFlowsThroughTheRules) {
  Problem problem = gpt({8, 64, 128, 8, 1, 512});
  std::vector<int64_t> dims = problem.batchDims();
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    bool isWeight = problem.tensors[t].kind == TensorKind::Parameter, isLoss = problem.tensors[t].name == "loss:0";
    EXPECT_EQ(dims[t], isWeight || isLoss ? -1 : 0) << problem.tensors[t].name;
  }
}

TEST(Problem, WhatIsBroadcastToTheSamplesIsSplitWithThem) {
  Problem problem = mlp(32, 64, 128, 10);
  // The bias as its own broadcast: bias [n] -> wide [b,n], read by the addition.
  Tensor wide;
  wide.name = "wide";
  wide.dims = {32, 128};
  Node broadcast;
  broadcast.name = "broadcast";
  broadcast.op = "Broadcast";
  broadcast.kind.form = dist::Form::Broadcast;
  broadcast.cheap = true;
  int64_t b = broadcast.rule.add(32), n = broadcast.rule.add(128);
  broadcast.rule.operands = {{{n}}};
  broadcast.rule.results = {{{b}, {n}}};
  Node &add = problem.nodes[1];
  broadcast.operands = {add.operands[1]};
  broadcast.results = {int(problem.tensors.size())};
  add.operands[1] = broadcast.results[0];
  add.rule.operands[1] = add.rule.operands[0];
  problem.tensors.push_back(wide);
  problem.nodes.insert(problem.nodes.begin(), broadcast);
  ASSERT_TRUE(problem.check()) << problem.check().message();
  std::vector<int64_t> dims = problem.batchDims();
  EXPECT_EQ(dims.back(), 0);
  EXPECT_EQ(Problem::batchFactor(problem.nodes[0], dims), b);
  EXPECT_EQ(dims[size_t(problem.nodes[0].operands[0])], -1); // the bias itself is not
}

TEST(Problem, RepeatedBlocksAreFound) {
  for (int64_t layers : {2, 3, 12}) {
    std::vector<Repeat> repeats = gpt({8, 64, 128, 8, layers, 512}).findRepeats();
    ASSERT_EQ(repeats.size(), 1u) << layers;
    EXPECT_GE(repeats[0].count, layers - 1);
    EXPECT_EQ(repeats[0].period, 38);
  }
  EXPECT_TRUE(mlp(32, 64, 128, 10).findRepeats().empty());
}

// Against all periods at all places, on chains of a few kinds of nodes with and without blocks in them.
TEST(Problem, TheRunThatSavesMostIsFound) {
  std::mt19937 random(7);
  auto roll = [&](int sides) { return int(random() % unsigned(sides)); };
  int withRun = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const int kinds = 1 + roll(6), period = 1 + roll(12), count = 1 + roll(5);
    std::vector<int> forms, block;
    for (int i = 0; i < period; ++i) block.push_back(roll(kinds));
    for (int i = roll(8); i-- > 0;) forms.push_back(roll(kinds));
    for (int i = 0; i < count; ++i) forms.insert(forms.end(), block.begin(), block.end());
    for (int i = roll(8); i-- > 0;) forms.push_back(roll(kinds));
    testing::ProblemBuilder b("chain", 4);
    int x = b.input("x", {4, 8});
    for (size_t i = 0; i < forms.size(); ++i)
      x = b.op("n" + std::to_string(i), "Op" + std::to_string(forms[i]), "bc->bc", {x});
    int saved = 0, shortest = 0;
    const int n = int(forms.size());
    for (int p = 1; 2 * p <= n; ++p)
      for (int first = 0, same = 0; first + p < n; ++first) {
        same = forms[size_t(first)] == forms[size_t(first + p)] ? same + 1 : 0;
        if (same / p * p > saved) saved = same / p * p, shortest = p;
      }
    int found = 0;
    for (const Repeat &repeat : b.problem.findRepeats()) {
      found = std::max(found, repeat.period * (repeat.count - 1));
      for (int i = repeat.first; i + repeat.period < repeat.end(); ++i)
        EXPECT_EQ(forms[size_t(i)], forms[size_t(i + repeat.period)]);
    }
    const bool isBlock = saved >= 2 && shortest >= 2;
    withRun += isBlock;
    EXPECT_EQ(found, isBlock ? saved : 0) << "trial " << trial;
  }
  EXPECT_GT(withRun, 500);
}

TEST(Decision, IsVerified) {
  Problem problem = gpt({8, 64, 128, 8, 2, 512});
  auto cluster = parseCluster("cpu:4");
  auto constraints = parseConstraints({.mesh = "dp=2,tp=2", .zero = "3"}, *cluster);
  ASSERT_TRUE(constraints) << constraints.status().message();
  auto decision = solve(problem, *cluster, *constraints, {});
  ASSERT_TRUE(decision) << decision.status().message();
  EXPECT_TRUE(verify(problem, *decision)) << verify(problem, *decision).message();

  Decision broken = *decision;
  broken.nodes[3].split[0] = {"dp", "tp"};
  broken.nodes[3].split[1] = {"tp"};
  EXPECT_THAT(verify(problem, broken).message(), HasSubstr("splits two factors"));
  broken = *decision;
  broken.parameters[0].parameter.dims[0] = {"pp"};
  EXPECT_THAT(verify(problem, broken).message(), HasSubstr("lacks"));
  broken = *decision;
  broken.nodes.pop_back();
  EXPECT_FALSE(verify(problem, broken));
  broken = *decision;
  broken.microbatches = 3;
  EXPECT_THAT(verify(problem, broken).message(), HasSubstr("do not divide"));
}

TEST(Decision, IsRead) {
  const std::string head = "cleave-decision 2\nmesh pp=2,dp=2,tp=2\nzero 1 dp\nbatch-axes dp\n";
  auto decision = Decision::parse(
      head + "stages 2\nnode \"up\" dp tp - stage 1 segment 3 keeps passes tp\nparameter \"w\" [-,tp] [] [dp+tp,-]\n",
      "d");
  ASSERT_TRUE(decision) << decision.status().message();
  EXPECT_EQ(decision->mesh.str(), "pp=2,dp=2,tp=2");
  EXPECT_EQ(decision->zeroAxes, dist::Axes{"dp"});
  EXPECT_EQ(decision->stages, 2);
  const NodeDecision &node = decision->nodes.at(0);
  EXPECT_EQ(node.split, (dist::FactorSharding{{"dp"}, {"tp"}, {}}));
  EXPECT_EQ(node.passesPartial, dist::Axes{"tp"});
  EXPECT_EQ(std::tuple(node.stage, node.segment, node.again), std::tuple(1, 3, false));
  EXPECT_EQ(decision->parameters.at(0).parameter.str(), "[{},{tp}]");
  EXPECT_EQ(decision->parameters.at(0).state.str(), "[{dp,tp},{}]");
  auto message = [&](const std::string &line) { return Decision::parse(head + line, "d.txt").status().message(); };
  EXPECT_THAT(message("mesh dp=0\n"), HasSubstr("d.txt:5"));
  EXPECT_THAT(message("parameter \"w\" dp [] []\n"), HasSubstr("'dp' is no sharding"));
  EXPECT_THAT(message("stages 2 2\n"), HasSubstr("d.txt:5: '2' is too much"));
  EXPECT_THAT(message("colour red\n"), HasSubstr("unknown word 'colour'"));
}

} // namespace
} // namespace cleave::planner
