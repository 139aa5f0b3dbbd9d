// The collectives that a decision implies: how often each tensor is brought together in a step.
#include "compiler/planner/explain/breakdown.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/planner/split/split_model.h"
#include "test/unit/planner/problem_builder.h"
#include <gtest/gtest.h>
#include <map>

namespace cleave::planner {
namespace {

using testing::gpt;
using testing::mlp;
using testing::ProblemBuilder;

Result<Decision> decide(const Problem &problem, const Cluster &cluster, const SplitFlags &flags) {
  Result<Constraints> constraints = parseConstraints(flags, cluster);
  if (!constraints) return constraints.status();
  return solve(problem, cluster, *constraints, {.alternatives = false});
}

// Bytes a step of the collectives of one kind over these axes.
double bytesOf(const DecidedModel &decided, const std::string &op, const dist::Axes &axes) {
  double bytes = 0;
  for (const CollectiveTotal &one : breakdown(decided).collectives)
    if (one.op == op && one.axes == axes) bytes += one.bytes;
  return bytes;
}

double bytesOf(const Problem &problem, const std::string &machines, const SplitFlags &flags, const std::string &op,
               const dist::Axes &axes) {
  const Cluster cluster = *parseCluster(machines);
  Result<Decision> decision = decide(problem, cluster, flags);
  if (!decision) return ADD_FAILURE() << decision.status().message(), 0;
  Result<DecidedModel> decided = decidedModel(problem, cluster, *decision);
  if (!decided) return ADD_FAILURE() << decided.status().message(), 0;
  return bytesOf(*decided, op, axes);
}

// x is no activation: nothing asks for the gradient that up.weight would make. Biases are added.
TEST(Collectives, WithZero3AParameterIsGatheredOnceForEachPassThatReadsIt) {
  const double up = 4.0 * 32 * 64, down = 4.0 * 64 * 16, biases = 4.0 * (64 + 16);
  for (int64_t microbatches : {1, 2})
    EXPECT_DOUBLE_EQ(bytesOf(mlp(32, 32, 64, 16), "cpu:4",
                             {.microbatches = std::to_string(microbatches), .like = "zero3"}, "all_gather", {"dp"}),
                     double(microbatches) * (up + 2 * down + biases));
}

// Both weights lie along their rows and are wanted whole. Nothing asks for x's gradient, which the first would make.
TEST(Collectives, AParameterThatLiesOtherwiseIsGatheredForEachPassThatReadsIt) {
  ProblemBuilder b("two", 16);
  const int y = b.op("in", "Contract", "bk,kn->bn", {b.input("x", {16, 64}), b.parameter("w", {64, 64})});
  b.op("loss", "Sum", "bn->", {b.op("out", "Contract", "bn,nm->bm", {y, b.parameter("v", {64, 8})})});
  const ProblemFacts facts = gatherFacts(b.problem, Device(), {});
  const Cluster cluster = *parseCluster("cpu:2");
  Setting setting;
  setting.tp = 2;
  setting.microbatches = 2;
  Constraints constraints;
  constraints.allowRedundantWork = true;
  const SplitModel model = *buildModel(b.problem, facts, cluster, constraints, setting);
  std::map<std::string, double> times;
  for (const Flow &flow : model.flows) {
    CollectiveSink sink;
    flowPrice(model, flow, 0, bit({whole, false}), &sink);
    if (b.problem.tensors[size_t(flow.tensor)].kind != TensorKind::Parameter) continue;
    for (const ImpliedCollective &one : sink)
      if (one.collective == Collective::AllGather) times[b.problem.tensors[size_t(flow.tensor)].name] += one.times;
  }
  EXPECT_EQ(times["w"], 2);
  EXPECT_EQ(times["v"], 4);
}

// Both weights lie along their rows and are wanted whole: so lies the sum of their gradients over the microbatches, of
// which a stage makes one whatever their number. ZeRO-2 cuts it; it is combined once.
TEST(Collectives, TheSumOfAGradientLiesAsReadersLeaveIt) {
  ProblemBuilder b("one", 16);
  const int x = b.op("in", "Relu", "bk->bk", {b.input("x", {16, 64})});
  b.op("loss", "Sum", "bn->", {b.op("out", "Contract", "bk,kn->bn", {x, b.parameter("w", {64, 32})})});
  const ProblemFacts facts = gatherFacts(b.problem, Device(), {});
  const Cluster cluster = *parseCluster("cpu:8");
  Constraints constraints;
  constraints.allowRedundantWork = true;
  struct Found {
    double more = 0, scatters = 0;
    bool passesOn = false;
  };
  auto find = [&](int64_t pp, int64_t microbatches, int zero) {
    Setting setting;
    setting.tp = 2;
    setting.dp = 2;
    setting.pp = pp;
    setting.microbatches = microbatches;
    setting.zero = zero;
    const SplitModel model = *buildModel(b.problem, facts, cluster, constraints, setting);
    Found found{0, 0, setting.passesGradientsOn()};
    for (const Flow &flow : model.flows) {
      if (b.problem.tensors[size_t(flow.tensor)].kind != TensorKind::Parameter) continue;
      found.more += sumBytes(model, flow, 0, bit({whole, true}));
      CollectiveSink sink;
      flowPrice(model, flow, 0, bit({whole, true}), &sink);
      for (const ImpliedCollective &one : sink)
        if (one.collective == Collective::ReduceScatter) found.scatters += one.times;
    }
    return found;
  };
  EXPECT_EQ(find(1, 1, 0).more, 0);
  EXPECT_FALSE(find(1, 1, 0).passesOn);
  EXPECT_EQ(find(1, 2, 0).more, 4.0 * 64 * 32 / 2);
  EXPECT_EQ(find(2, 1, 0).more, 4.0 * 64 * 32 / 2);
  EXPECT_TRUE(find(2, 1, 0).passesOn);
  EXPECT_EQ(find(1, 2, 1).scatters, 1);
  EXPECT_EQ(find(1, 2, 2).more, 4.0 * 64 * 32 / 2 / 2);
  EXPECT_EQ(find(1, 2, 2).scatters, 1);
}

// One product a block: on a cube the next block has rows and columns exchanged, and gathers what the first does not.
TEST(Collectives, BlocksThatLieOtherwiseOnACubeArePricedByThemselves) {
  ProblemBuilder b("chain", 16);
  int x = b.input("x", {16, 16, 64});
  for (int i = 0; i < 5; ++i) {
    const std::string at = "block" + std::to_string(i);
    x = b.op(at + "/product", "Contract", "bsh,hk->bsk", {x, b.parameter(at + ".weight", {64, 64})});
    x = b.op(at + "/shift", "Add", "bsk,k->bsk", {x, b.parameter(at + ".bias", {64})});
    x = b.op(at + "/exp", "Exp", "bsk->bsk", {x});
  }
  b.op("loss", "Sum", "bsk->", {x});
  ASSERT_FALSE(b.problem.findRepeats().empty());
  const Cluster cluster = *parseCluster("a100-80g:8");
  Result<Decision> decision = decide(b.problem, cluster, {.like = "3d"});
  ASSERT_TRUE(decision) << decision.status().message();
  EXPECT_NE(testing::findNode(*decision, "block1/product")->split,
            testing::findNode(*decision, "block2/product")->split);
  Result<DecidedModel> decided = decidedModel(b.problem, cluster, *decision);
  ASSERT_TRUE(decided) << decided.status().message();
  EXPECT_NEAR(decided->evaluate().predicted.stepSeconds, decision->predicted.stepSeconds,
              1e-9 * decision->predicted.stepSeconds);
}

// Three products read one tensor: on a plane it is gathered for the first of them, though they are repetitions of one
// form. In the backward pass it is gathered again, and the three gradients come back one by one.
TEST(Collectives, WhatRepetitionsReadIsGatheredOnce) {
  ProblemBuilder b("three", 16);
  int x = b.op("in", "Contract", "bsh,hk->bsk", {b.input("x", {16, 16, 64}), b.parameter("w", {64, 64})});
  std::vector<int> parts;
  for (int i = 0; i < 3; ++i) {
    const std::string at = "part" + std::to_string(i);
    const int y = b.op(at, "Contract", "bsk,kn->bsn", {x, b.parameter(at + ".w", {64, 64})});
    parts.push_back(b.op(at + "/exp", "Exp", "bsn->bsn",
                         {b.op(at + "/bias", "Add", "bsn,n->bsn", {y, b.parameter(at + ".b", {64})})}));
  }
  b.op("loss", "Sum", "bsn->", {b.op("all", "Add", "bsn,bsn,bsn->bsn", parts)});
  const double whole = 4.0 * 16 * 16 * 64 / 2; // of one row's samples
  const Cluster cluster = *parseCluster("cpu:4");
  Result<Decision> decision = decide(b.problem, cluster, {.microbatches = "1", .like = "2d"});
  ASSERT_TRUE(decision) << decision.status().message();
  Result<DecidedModel> decided = decidedModel(b.problem, cluster, *decision);
  ASSERT_TRUE(decided) << decided.status().message();
  ASSERT_EQ(decided->model.variables[size_t(decided->model.variableOfNode[1])].count, 3);
  EXPECT_DOUBLE_EQ(bytesOf(*decided, "all_gather", {"tp_col"}), 2 * whole);
}

// y = x - mean(x) over all samples: the mean is summed up, and so is its gradient, by which all samples read it.
TEST(Collectives, StatisticsOfABatchAreSummedUpInBothPasses) {
  ProblemBuilder b("statistics", 16);
  int x = b.op("in", "Contract", "bk,kn->bn", {b.input("x", {16, 64}), b.parameter("w", {64, 32})});
  x = b.op("centred", "Sub", "bn,n->bn", {x, b.op("mean", "Sum", "bn->n", {x})});
  b.op("loss", "Sum", "bn->", {b.op("square", "Mul", "bn,bn->bn", {x, x})});
  const double loss = 4, mean = 4.0 * 32, weight = 4.0 * 64 * 32;
  const SplitFlags flags = {.mesh = "dp=4,tp=1,pp=1", .zero = "0", .microbatches = "1", .recompute = "none"};
  EXPECT_DOUBLE_EQ(bytesOf(b.problem, "cpu:4", flags, "all_reduce", {"dp"}), loss + 2 * mean + weight);
}

// A mask that is made of an input is made by each stage that reads it.
TEST(Collectives, WhatAStageCanMakeByItselfIsNotSent) {
  ProblemBuilder b("masked", 16);
  int x = b.input("x", {16, 64});
  const int mask = b.op("mask", "Less", "bn,bn->bn", {b.input("m", {16, 64}), b.input("m2", {16, 64})});
  for (int i = 0; i < 4; ++i) {
    const std::string at = "block" + std::to_string(i);
    x = b.op(at, "Contract", "bk,kn->bn", {x, b.parameter(at + ".w", {64, 64})});
    x = b.op(at + "/masked", "Mul", "bn,bn->bn", {x, mask});
  }
  b.op("loss", "Sum", "bn->", {x});
  const SplitFlags flags = {.mesh = "pp=2,tp=1", .microbatches = "2", .schedule = "gpipe", .recompute = "none"};
  const double activation = 4.0 * 16 * 64;
  EXPECT_DOUBLE_EQ(bytesOf(b.problem, "cpu:2", flags, "send", {"pp"}), 2 * activation / 2); // a mean of two ranks
}

// A total of one kind, or an empty one.
CollectiveTotal totalOf(const Problem &problem, const std::string &machines, const SplitFlags &flags,
                        const std::string &op, const std::string &why) {
  const Cluster cluster = *parseCluster(machines);
  Result<Decision> decision = decide(problem, cluster, flags);
  if (!decision) return ADD_FAILURE() << decision.status().message(), CollectiveTotal();
  for (const CollectiveTotal &one : breakdown(*decidedModel(problem, cluster, *decision)).collectives)
    if (one.op == op && one.why.find(why) != std::string::npos) return one;
  return {};
}

// Bytes of every tensor are part of all bytes; what a block has stands for those of all blocks.
TEST(Collectives, ParametersThatAreGatheredAreNamedOnceForAllBlocks) {
  const CollectiveTotal gathers =
      totalOf(gpt({16, 16, 32, 4, 3, 64}), "cpu:4", {.microbatches = "1", .recompute = "none", .like = "zero3"},
              "all_gather", "");
  // A block has 16 kinds of parameters; the others are the table, positions and the last norm's two.
  ASSERT_EQ(gathers.tensors.size(), mostMovedTensors);
  EXPECT_EQ(gathers.tensorsMore, 20 - int64_t(mostMovedTensors));
  for (const char *name : {"layers.0/up.weight", "layers.0/down.weight"}) {
    auto found = std::ranges::find(gathers.tensors, name, &MovedTensor::name);
    ASSERT_NE(found, gathers.tensors.end()) << name;
    EXPECT_EQ(found->alike, 3);
    EXPECT_DOUBLE_EQ(found->bytes, 2 * 3 * 4.0 * 32 * 128); // for both passes
  }
}

// One tensor passes each border of a chain of blocks, that of the block before it.
TEST(Collectives, WhatPassesToTheNextStageIsNamed) {
  const SplitFlags flags = {
      .mesh = "pp=4", .zero = "0", .microbatches = "4", .schedule = "1f1b", .recompute = "none", .balance = "1,1,1,1"};
  const Problem problem = gpt({16, 16, 32, 4, 4, 64});
  const CollectiveTotal forward = totalOf(problem, "cpu:4", flags, "send", "activations pass");
  const double activation = 4.0 * 16 * 16 * 32;
  ASSERT_EQ(forward.tensors.size(), 1u);
  EXPECT_EQ(forward.tensors[0].name, "layers.0/mlp/residual");
  EXPECT_EQ(forward.tensors[0].alike, 3);
  EXPECT_DOUBLE_EQ(forward.tensors[0].bytes, 3 * activation / 4); // the mean of four ranks
  const CollectiveTotal tied = totalOf(problem, "cpu:4", flags, "send", "what several stages have");
  ASSERT_EQ(tied.tensors.size(), 1u);
  EXPECT_EQ(tied.tensors[0].name, "tok_emb.weight");
}

// Keys and values, each with half of the bytes.
TEST(Collectives, WhatTravelsRoundARingIsNamed) {
  const CollectiveTotal ring =
      totalOf(gpt({4, 16, 32, 4, 3, 64}), "cpu:2", {.mesh = "cp=2", .recompute = "none"}, "shift", "ring");
  ASSERT_EQ(ring.tensors.size(), 2u);
  for (const MovedTensor &tensor : ring.tensors) {
    EXPECT_EQ(tensor.alike, 3);
    EXPECT_DOUBLE_EQ(tensor.bytes, ring.bytes / 2);
  }
}

// The head is tied to the embedding: of a table that does not train, rotary positions in all layers, nothing is sent.
TEST(Collectives, OnlyGradientsOfWhatTrainsAreSummedUpBetweenStages) {
  for (bool trains : {true, false}) {
    Problem problem = gpt({8, 64, 128, 8, 2, 512});
    for (Tensor &tensor : problem.tensors)
      if (tensor.name == "tok_emb.weight") tensor.trainable = trains;
    const Cluster cluster = *parseCluster("a100-80g:2");
    Result<Decision> decision = decide(problem, cluster, {.mesh = "pp=2", .schedule = "1f1b"});
    ASSERT_TRUE(decision) << decision.status().message();
    int64_t tied = 0;
    for (const CollectiveTotal &one : breakdown(*decidedModel(problem, cluster, *decision)).collectives)
      tied += one.why == "gradients of what several stages have are summed up";
    EXPECT_EQ(tied, trains);
  }
}

// While a block is computed again the parameters that its gradients read stay as they were gathered.
TEST(Collectives, ParametersThatAreReadAgainAreInMemoryTogether) {
  const Problem problem = gpt({8, 16, 32, 4, 4, 64});
  const ProblemFacts facts = gatherFacts(problem, Device(), {});
  const Cluster cluster = *parseCluster("a100-80g:4");
  Setting setting;
  setting.dp = 4;
  setting.zero = 3;
  setting.recompute = Recompute::Full;
  const SplitModel model = *buildModel(problem, facts, cluster, {}, setting);
  const std::vector<int> choice(model.variables.size(), 0);
  const std::vector<double> gathered = gatheredAgain(model, choice);
  double most = 0;
  for (double bytes : gathered) most = std::max(most, bytes);
  EXPECT_GE(most, 4.0 * 32 * (3 * 32 + 32 + 4 * 32)); // queries, keys and values, projection, up
  Cost state;
  state.gatheredAgain = most;
  const double without = deviceMemory(setting, state, 0, 0).total();
  state.unitsAgain = 1;
  EXPECT_DOUBLE_EQ(deviceMemory(setting, state, 0, 0).total(), without + most);
}

// Where the norm of all gradients is needed, what an update makes of their sums stands in memory together.
TEST(Collectives, GradientsThatMeetAtTheUpdateAreInMemoryTogether) {
  Cost state;
  state.means = 1e6;
  Setting setting;
  setting.microbatches = 2;
  const double scalars = workspaceBytes(setting, 0, {});
  EXPECT_EQ(workspaceBytes(setting, 1e3, state) - scalars, 1e3);
  setting.meetsAtUpdate = true;
  EXPECT_EQ(workspaceBytes(setting, 1e3, state) - scalars, 1e6);
  EXPECT_EQ(workspaceBytes(setting, 2e6, state) - scalars, 2e6);
  setting.microbatches = 1;
  EXPECT_EQ(workspaceBytes(setting, 1e3, state) - scalars, 1e3);
}

// Attention on a ring of devices against its formula: each device's queries meet the keys of one device at a time.
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
  const ProblemFacts facts = gatherFacts(problem, cluster->device, *constraints);
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
                      slowestOf(*cluster) / ((1 + half / rows) * (1 + half / keys) * (1 + half / wide));
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
