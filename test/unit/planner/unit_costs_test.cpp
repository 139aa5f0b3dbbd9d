// A device's memory: the same sum for a step without stages as for a plan of one stage; buckets, and what is in hand.
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/cost/update_bytes.h"
#include "test/unit/planner/first_split.h"
#include "test/unit/planner/problem_builder.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace cleave;
using namespace cleave::planner;
using namespace cleave::planner::testing;

namespace {

// How long data lies in caches between two passes: of products alone, their FLOP at the device's rate. Others who use
// the caches push out more of what a whole batch keeps than of what a microbatch does.
TEST(UnitCosts, WhatLiesLongInACacheLeavesIt) {
  const Problem problem = mlp(64, 32, 128, 16);
  const ProblemFacts facts = gatherFacts(problem, Device(), {});
  Cluster cluster = *parseCluster("cpu:2");
  Device &device = cluster.device;
  device.elementSeconds.fill(0);
  device.memoryBandwidth = 10e9;
  device.bandwidthEfficiency = 1;
  device.caches = {{1 << 26, 100e9}};
  auto modelOf = [&](double hold, int64_t microbatches) {
    device.cacheHoldSeconds = hold;
    Setting setting;
    setting.dp = 2;
    setting.microbatches = microbatches;
    return *buildModel(problem, facts, cluster, {}, setting);
  };
  EXPECT_EQ(modelOf(0, 1).keptSecondsPerByte, 1 / 100e9); // nobody else is there
  const double step = 3 * 2.0 * 64 * 32 * (128 + 16 * 4) / 2 / (device.flopsAt("fp32") * device.computeEfficiency);
  for (int64_t microbatches : {1, 4}) {
    const SplitModel model = modelOf(step, microbatches);
    EXPECT_NEAR(model.stepSeconds, step, 1e-3 * step);
    const double passes = 1 / double(microbatches), left = (1 - std::exp(-passes)) / passes; // the mean over ages
    const double expected = left / 100e9 + (1 - left) / 10e9;
    EXPECT_NEAR(model.keptSecondsPerByte, expected, 1e-3 * expected);
    EXPECT_NEAR(model.weightSecondsPerByte, expected, 1e-3 * expected);
  }
}

// A head with more tokens than a block has features: logits need most where blocks keep little.
TEST(UnitCosts, AStepAndAPlanOfOneStageCountAlike) {
  const Problem problem = gpt({8, 16, 32, 4, 3, 512});
  const ProblemFacts facts = gatherFacts(problem, Device(), {});
  const Cluster cluster = *parseCluster("a100-80g:4");
  for (Recompute how : {Recompute::None, Recompute::Selective, Recompute::Full})
    for (int zero = 0; zero <= 3; ++zero)
      for (int64_t microbatches : {1, 2})
        for (bool exceptLast : {false, true}) {
          Setting setting;
          setting.dp = 4;
          setting.zero = zero;
          setting.recompute = how;
          setting.microbatches = microbatches;
          setting.exceptLast = exceptLast;
          FirstSplit split(*buildModel(problem, facts, cluster, {}, setting));
          split.stages.memoryLimit = cluster.device.memoryBytes;
          split.stages.recompute = how;
          const MemoryBreakdown step = evaluate(split.model, split.choice).predicted.memory,
                                plan = evaluatePlan(split.stages, planCut(split.stages, {0})).predicted.memory;
          EXPECT_NEAR(step.total(), plan.total(), 1) << setting.str();
          EXPECT_NEAR(step.activations, plan.activations, 1) << setting.str();
          EXPECT_NEAR(step.workspace, plan.workspace, 1) << setting.str();
        }
}

// Muon's products: divided among the devices that have parts of the parameter but for those that each makes, in fp32
// whatever the step is in; what they exchange for them is waited for.
TEST(UnitCosts, AnUpdateMultipliesAndExchanges) {
  ProblemBuilder b("muon", 16);
  const int w = b.parameter("w", {64, 256});
  b.op("loss", "Sum", "bh->", {b.op("up", "Contract", "bk,kh->bh", {b.input("x", {16, 64}), w})});
  const Problem plain = b.problem;
  UpdateWork &work = b.problem.tensors[size_t(w)].update;
  work.flops = 6e12;
  work.products = 15;
  work.splits = {{0, 5e6, 5, 4, 1}, {2e12, 0, 0, 81920, 5}};
  b.problem.precision = "bf16";
  ASSERT_EQ(Problem::parse(b.problem.text(), "p.txt")->tensors[size_t(w)].update, work);
  const Cluster cluster = *parseCluster("a100-80g:4");
  auto priceOf = [&](const Problem &problem, int zero) {
    Setting setting;
    setting.dp = 4;
    setting.zero = zero;
    const SplitModel model = *buildModel(problem, gatherFacts(problem, cluster.device, {}), cluster, {}, setting);
    return homePrice(model, model.variables[size_t(model.variableOfTensor[size_t(w)])], 0);
  };
  auto seconds = [&](double flops) {
    const double side = std::cbrt(flops / 15 / 2);
    return operationSeconds(
        cluster, "fp32",
        {.flops = flops, .bytes = 15 * 12 * side * side, .product = {side, side, side}, .kernels = 15});
  };
  EXPECT_NEAR(priceOf(b.problem, 0).update - priceOf(plain, 0).update, seconds(6e12), 1e-9);
  EXPECT_EQ(priceOf(b.problem, 0).exposed, priceOf(plain, 0).exposed);
  // ZeRO cuts the longer dimension.
  EXPECT_NEAR(priceOf(b.problem, 1).update - priceOf(plain, 1).update, seconds(3e12), 1e-9);
  EXPECT_NEAR(priceOf(b.problem, 1).exposed - priceOf(plain, 1).exposed,
              5 * collectiveSeconds(cluster, Collective::AllReduce, {4, 4}, 16384), 1e-12);
}

// A convolution of few channels is no faster on a part of them: blocks of channels are filled up anyway.
TEST(UnitCosts, HalfABlockOfChannelsTakesAsLong) {
  Cluster cluster = *parseCluster("cpu:2");
  cluster.device.convolutions.startSeconds = cluster.device.convolutions.orderSeconds = 0;
  cluster.device.memoryBandwidth = 1e30; // work alone counts
  Constraints constraints;
  constraints.allowRedundantWork = true; // candidates that split nothing, too
  Setting setting;
  setting.tp = 2;
  auto passes = [&](int64_t channels, bool isSplit) {
    ProblemBuilder b("images", 16);
    int x = b.op("up", "Contract", "bp,pc->bpc", {b.input("x", {16, 64}), b.parameter("u", {64, channels})});
    x = b.op("conv", "Conv", "bpi,oi->bpo", {x, b.parameter("w", {channels, channels})});
    b.op("loss", "Sum", "bpo->", {x});
    Node &conv = b.problem.nodes[1];
    conv.cheap = false;
    conv.flops = 2.0 * 16 * 64 * double(channels * channels);
    conv.backwardFlops = 2 * conv.flops;
    const SplitModel model =
        *buildModel(b.problem, gatherFacts(b.problem, cluster.device, constraints), cluster, constraints, setting);
    for (const Candidate &candidate : model.variables[size_t(model.variableOfNode[1])].candidates)
      if (isSplit ? candidate.uses[1].layout == 0 : candidate.factor < 0) return candidate.forward + candidate.backward;
    return -1.0;
  };
  EXPECT_NEAR(passes(16, true) / passes(16, false), 1, 1e-9);
  EXPECT_NEAR(passes(32, true) / passes(32, false), 0.5, 1e-9);
}

// A table that the first unit reads whole and the last one in parts lies in parts: every stage that reads it has a sum
// of whole gradients, and a step without stages has one.
TEST(UnitCosts, EveryStageHasTheSumOfATiedTable) {
  ProblemBuilder b("tied", 16);
  const int table = b.parameter("table", {64, 64});
  int x = b.op("in", "Contract", "bv,vh->bh", {b.input("x", {16, 64}), table});
  x = b.op("middle", "Contract", "bh,hk->bk", {x, b.parameter("w", {64, 64})});
  b.op("loss", "Sum", "bv->", {b.op("out", "Contract", "bh,vh->bv", {x, table})});
  Constraints constraints;
  constraints.allowRedundantWork = true;
  const ProblemFacts facts = gatherFacts(b.problem, Device(), constraints);
  const Cluster cluster = *parseCluster("cpu:4");
  Setting setting;
  setting.tp = 2;
  setting.microbatches = 2;
  for (int64_t pp : {1, 2}) {
    setting.pp = pp;
    const SplitModel model = *buildModel(b.problem, facts, cluster, constraints, setting);
    std::vector<int> choice(model.variables.size(), 0);
    const size_t home = size_t(model.variableOfTensor[size_t(table)]);
    for (size_t i = 0; i < model.variables[home].homes.size(); ++i)
      if (model.variables[home].homes[i] == 0) choice[home] = int(i);
    // The last product splits what it makes: of the table the first dimension.
    const Variable &last = model.variables[size_t(model.variableOfNode[2])];
    for (size_t c = 0; c < last.candidates.size(); ++c)
      if (last.candidates[c].uses[1].layout == 0) choice[size_t(model.variableOfNode[2])] = int(c);
    ASSERT_NE(choice[size_t(model.variableOfNode[2])], 0);
    const double more = 4.0 * 64 * 64 / 2;
    ASSERT_EQ(model.layout->shared.size(), 1U);
    EXPECT_EQ(costState(model, choice).shared[0].sums, more);
    for (const Cost &unit : unitMemory(model, choice)) EXPECT_EQ(unit.sums, 0);
    if (pp == 1)
      EXPECT_EQ(evaluate(model, choice).predicted.memory.gradients,
                4.0 * (64 * 64 / 2 + 64 * 64) + more + 2 * bufferAlignment);
  }
}

// The backward pass makes a wider copy again from the narrow value, and what is inside of a kernel from what stands in
// memory; a copy that was gathered it cannot make, and has it beside that.
TEST(UnitCosts, WhatIsMadeAgainIsKeptWhereItWasGathered) {
  ProblemBuilder b("mixed", 16);
  const int narrow = b.op("product", "Contract", "bk,kn->bn", {b.input("x", {16, 64}), b.parameter("w", {64, 32})});
  b.problem.tensors[size_t(narrow)].elementBytes = 2;
  b.problem.tensors[size_t(narrow)].saved = true;
  const int wide = b.op("widen", "Cast", "bn->bn", {narrow});
  const int negative = b.op("negative", "Neg", "bn->bn", {wide});
  b.problem.tensors[size_t(b.op("exp", "Exp", "bn->bn", {negative}))].saved = true;
  const ProblemFacts facts = gatherFacts(b.problem, Device(), {});
  const Cluster cluster = *parseCluster("cpu:2");
  Setting setting;
  setting.tp = 2;
  const SplitModel model = *buildModel(b.problem, facts, cluster, {}, setting);
  auto kept = [&](int tensor, Layout produced, const Use &use) {
    for (const Flow &flow : model.flows)
      if (flow.tensor == tensor) return flowBytes(model, flow, produced, bit(use)).here;
    return -1.0;
  };
  for (int tensor : {wide, negative}) {
    EXPECT_EQ(kept(tensor, whole, {whole, false}), 0);
    EXPECT_EQ(kept(tensor, 1, {1, false}), 0);
    EXPECT_EQ(kept(tensor, 1, {whole, false}), 4.0 * 16 * 32);
  }
}

// The messages of the first of four stages to the last one wait there until that one comes to them: buffers for all
// microbatches in flight, and for their gradients on the way back.
TEST(UnitCosts, WhatPassesOverStagesHasBuffersForAllMicrobatchesInFlight) {
  const Cluster cluster = *parseCluster("cpu:4");
  Setting setting;
  setting.pp = 4;
  setting.microbatches = 8;
  setting.schedule = "gpipe";
  auto workspaces = [&](bool passes) {
    ProblemBuilder b("chain", 128);
    std::vector<int> made = {b.input("x", {128, 64})};
    for (int layer = 0; layer < 4; ++layer) {
      const std::string number = std::to_string(layer);
      made.push_back(
          b.op("product" + number, "Contract", "bh,hk->bk", {made.back(), b.parameter("w" + number, {64, 64})}));
    }
    b.op("loss", "Sum", "bk->", {b.op("skip", "Add", "bk,bk->bk", {made[4], passes ? made[1] : made[4]})});
    const ProblemFacts facts = gatherFacts(b.problem, cluster.device, {});
    FirstSplit split(*buildModel(b.problem, facts, cluster, {}, setting));
    StageProblem &stages = split.stages;
    stages.profile = scheduleProfile("gpipe", 4, 8);
    stages.memoryLimit = cluster.device.memoryBytes;
    stages.recompute = Recompute::None;
    EXPECT_EQ(split.model.layout->units.size(), 4U);
    std::vector<double> bytes;
    for (const StageDecision &stage : evaluatePlan(stages, planCut(stages, {0, 1, 2, 3})).stages)
      bytes.push_back(stage.memory.workspace);
    return bytes;
  };
  const std::vector<double> with = workspaces(true), without = workspaces(false);
  const double bytes = 4.0 * 16 * 64;
  EXPECT_GE(with[0] - without[0], 8 * bytes);
  EXPECT_GE(with[3] - without[3], 6 * bytes);
}

// Gradients that are partial sums over tp are combined in a bucket beside the sums that they are made of.
TEST(UnitCosts, GradientsAreCombinedBesideTheirSums) {
  ProblemBuilder b("rows", 16);
  const int x = b.input("x", {16, 8, 32}), w = b.parameter("w", {32, 64});
  b.op("loss", "Sum", "bsn->", {b.op("product", "Contract", "bsk,kn->bsn", {x, w})});
  const ProblemFacts facts = gatherFacts(b.problem, Device(), {});
  const Cluster cluster = *parseCluster("cpu:2");
  Setting setting;
  setting.tp = 2;
  const SplitModel model = *buildModel(b.problem, facts, cluster, {}, setting);
  for (const Flow &flow : model.flows) {
    if (flow.tensor != w) continue;
    EXPECT_EQ(combinedBytes(model, flow, whole, bit({whole, true})), 4.0 * 32 * 64);
    EXPECT_EQ(combinedBytes(model, flow, whole, bit({whole, false})), 0);
    EXPECT_EQ(combinedBytes(model, flow, 1, bit({1, false})), 0);
    EXPECT_EQ(combinedBytes(model, flow, 1, bit({0, false})), 4.0 * 32 * 64 / 2); // all-to-all of a half
  }
  Cost work;
  work.combined = 1 << 20;
  const double without = deviceMemory(setting, {}, 0, 0).total();
  EXPECT_EQ(deviceMemory(setting, work, 0, 0).total() - without, work.combined);
}

// A GPU has the inputs of the step that runs and of the next one beside the arena, all microbatches of both, in pieces
// of 256 bytes, wherever tp splits what is made of them. On CPUs they lie in the host's memory.
TEST(UnitCosts, InputsOfTwoStepsLieOnAGpu) {
  ProblemBuilder b("rows", 48);
  const int x = b.input("x", {48, 5}), w = b.parameter("w", {5, 64});
  b.op("loss", "Sum", "bn->", {b.op("product", "Contract", "bk,kn->bn", {x, w})});
  const ProblemFacts facts = gatherFacts(b.problem, Device(), {});
  for (const char *kind : {"h100-80g:4", "cpu:4"}) {
    const Cluster cluster = *parseCluster(kind);
    Setting setting;
    setting.dp = setting.tp = 2;
    setting.microbatches = 3;
    const SplitModel model = *buildModel(b.problem, facts, cluster, {}, setting);
    const std::vector<int> choice(model.variables.size(), 0);
    Cost device;
    const std::vector<Cost> units = unitMemory(model, choice);
    for (size_t u = 0; u < units.size(); ++u) device.add(units[u], double(model.layout->sizeOfKind[u]));
    const double piece = 4.0 * 8 * 5; // of a device's 24 samples, a third
    EXPECT_EQ(device.staged, cluster.device.isCpu() ? 0 : 2 * 3 * std::ceil(piece / 256) * 256);
    Cost other = device;
    other.staged = 0;
    EXPECT_EQ(deviceMemory(setting, device, 0, 0).workspace - deviceMemory(setting, other, 0, 0).workspace,
              device.staged);
    EXPECT_GE(evaluate(model, choice).predicted.memory.workspace, device.staged);
  }
}

TEST(UnitCosts, AGradientLargerThanABucketIsOne) {
  Setting setting;
  setting.dp = 4;
  Cost state;
  state.parameters = state.gradients = 400e6;
  state.largestGradient = 10e6;
  const double bucket = 25.0 * (1 << 20), scalars = workspaceBytes({}, 0, {});
  EXPECT_EQ(workspaceBytes(setting, 0, state) - scalars, bucket);
  state.largestGradient = 100e6;
  EXPECT_EQ(workspaceBytes(setting, 0, state) - scalars, 100e6);
  // Scattered, two of four parts stand beside: its own and that of the one before.
  setting.zero = 2;
  EXPECT_EQ(workspaceBytes(setting, 0, state) - scalars, 150e6);
}

// ZeRO-1 of the classifier (61 MB of gradients, 34 of one layer) on four devices, with a norm to clip by: its plan has
// 67,932,416 bytes in hand beside its state and the sums of gradients.
TEST(UnitCosts, PartsThatWaitForTheNormStandBesideGradients) {
  Setting setting;
  setting.dp = 4;
  setting.zero = 1;
  setting.microbatches = 2;
  setting.meetsAtUpdate = true;
  Cost state;
  state.parameters = state.gradients = 61098920;
  state.means = state.gradients / 4;
  state.largestGradient = 4.0 * 2048 * 4096;
  const double inHand = workspaceBytes(setting, state.largestGradient, state);
  EXPECT_GE(inHand, 67932416);
  EXPECT_LE(inHand, 1.1 * 67932416);
  setting.meetsAtUpdate = false; // each part is used and done with
  EXPECT_LT(workspaceBytes(setting, state.largestGradient, state), inHand);
}

// One microbatch's backward pass frees what it has used: the estimate is no less than what is there at any unit, and
// less than all activations beside all gradients.
TEST(UnitCosts, GradientsTakeTheRoomOfActivations) {
  const Cluster cluster = *parseCluster("cpu:1");
  const std::vector<int64_t> widths = {64, 512, 32, 1024, 256, 8, 640, 128};
  constexpr int64_t samples = 256;
  ProblemBuilder b("chain", samples);
  int x = b.input("x", {samples, widths[0]});
  std::vector<double> kept, gradients; // by product: what it reads, and of its weight
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const std::string at = std::to_string(i);
    kept.push_back(i == 0 ? 0 : double(samples * widths[i] * 4));
    gradients.push_back(double(widths[i] * widths[i + 1] * 4 + 64));
    x = b.op("product" + at, "Contract", "bk,kn->bn", {x, b.parameter("w" + at, {widths[i], widths[i + 1]})});
    x = b.op("exp" + at, "Exp", "bn->bn", {x});
    b.problem.tensors[size_t(x)].saved = true;
  }
  b.op("loss", "Sum", "bn->", {x});
  const SplitModel model = *buildModel(b.problem, gatherFacts(b.problem, cluster.device, {}), cluster, {}, {});
  const MemoryBreakdown memory = evaluate(model, std::vector<int>(model.variables.size(), 0)).predicted.memory;
  double allKept = 0, allGradients = 0, most = 0;
  for (double bytes : kept) allKept += bytes;
  for (double bytes : gradients) allGradients += bytes;
  double now = allKept;
  for (size_t i = kept.size(); i-- > 0;) {
    now += gradients[i];
    most = std::max(most, now);
    now -= kept[i];
  }
  EXPECT_GE(memory.gradients + memory.activations + memory.workspace, most);
  EXPECT_LT(memory.gradients + memory.activations, allKept + allGradients);
}

// Everything in memory begins at a multiple of 64 bytes: a bias of three numbers takes as much as one of sixteen, and
// so do its gradient (beside the sum of its squares), each of its states, and what is kept of three samples.
TEST(UnitCosts, WhatIsSmallTakesAWholeLine) {
  const Cluster cluster = *parseCluster("cpu:1");
  auto memory = [&](int64_t size, int64_t microbatches = 1) {
    ProblemBuilder b("bias", size);
    const int y = b.op("add", "Add", "bn,n->bn", {b.input("x", {size, size}), b.parameter("bias", {size})});
    b.problem.tensors[size_t(y)].saved = true;
    b.problem.tensors[1].optimizerBytes = 8;
    b.op("loss", "Sum", "bn->", {y});
    Setting setting;
    setting.microbatches = microbatches;
    const SplitModel model = *buildModel(b.problem, gatherFacts(b.problem, cluster.device, {}), cluster, {}, setting);
    return evaluate(model, std::vector<int>(model.variables.size(), 0)).predicted.memory;
  };
  EXPECT_EQ(memory(3).parameters, 64);
  EXPECT_EQ(memory(3, 3).gradients, 2 * 64);
  EXPECT_EQ(memory(3).optimizer, 2 * 64);
  EXPECT_EQ(memory(16).parameters, 64);
  EXPECT_EQ(memory(16).optimizer, 2 * 64);
  EXPECT_EQ(memory(17).optimizer, 4 * 64);
  EXPECT_EQ(std::fmod(memory(3).activations, 64), 0);
  EXPECT_GT(memory(3).workspace, 0); // the loss, the learning rate
}

// Adafactor's means of w [20, 50] are 20 and 50 numbers, which lie apart; of two parts along the rows of w each has
// half of the rows' and all of the columns'.
TEST(UnitCosts, MeansOverRowsAndColumnsLieApart) {
  auto optimizer = [](const char *devices, int64_t ways) {
    ProblemBuilder b("one", 16);
    const int w = b.parameter("w", {20, 50});
    b.problem.tensors[size_t(w)].optimizerBytes = b.problem.tensors[size_t(w)].meansBytes = 4.0 * (20 + 50) / (20 * 50);
    b.op("loss", "Sum", "bn->", {b.op("product", "Contract", "bk,kn->bn", {b.input("x", {16, 20}), w})});
    Setting setting;
    setting.dp = ways;
    setting.zero = ways > 1 ? 1 : 0;
    const Cluster cluster = *parseCluster(devices);
    const SplitModel model = *buildModel(b.problem, gatherFacts(b.problem, cluster.device, {}), cluster, {}, setting);
    return evaluate(model, std::vector<int>(model.variables.size(), 0)).predicted.memory.optimizer;
  };
  EXPECT_GE(optimizer("cpu:1", 1), 128 + 256); // lines of 64 bytes
  EXPECT_LE(optimizer("cpu:1", 1), 128 + 256 + 64);
  EXPECT_GE(optimizer("cpu:2", 2), 64 + 256);
}

// A master copy is read and written, but it is no moving average: where memory costs nothing, it adds no time.
TEST(UnitCosts, AMasterCopyIsNoMovingAverage) {
  auto step = [](double averages, double master, double bandwidth) {
    ProblemBuilder b("one", 16);
    const int w = b.parameter("w", {512, 512});
    b.problem.tensors[size_t(w)].optimizerBytes = averages + master;
    b.problem.tensors[size_t(w)].masterBytes = master;
    b.op("loss", "Sum", "bn->", {b.op("product", "Contract", "bk,kn->bn", {b.input("x", {16, 512}), w})});
    Cluster cluster = *parseCluster("cpu:1");
    cluster.device.caches.clear();
    cluster.device.memoryBandwidth = bandwidth;
    const SplitModel model = *buildModel(b.problem, gatherFacts(b.problem, cluster.device, {}), cluster, {}, {});
    return evaluate(model, std::vector<int>(model.variables.size(), 0)).predicted.stepSeconds;
  };
  for (double averages : {0.0, 4.0, 8.0}) {
    EXPECT_DOUBLE_EQ(step(averages, 4, 1e30), step(averages, 0, 1e30));
    EXPECT_GT(step(averages, 4, 1e9), step(averages, 0, 1e9));
  }
}

// An update works on the shard that a device keeps, unless a product in it needs all of the parameter.
TEST(UnitCosts, AnUpdateMakesWhatItsShardNeeds) {
  ProblemBuilder b("one", 16);
  const int w = b.parameter("w", {64, 64});
  b.problem.tensors[size_t(w)].updateBytes = 8;
  b.op("loss", "Sum", "bn->", {b.op("product", "Contract", "bk,kn->bn", {b.input("x", {16, 64}), w})});
  const Cluster cluster = *parseCluster("cpu:4");
  auto update = [&](int zero, int64_t tp) {
    Setting setting;
    setting.dp = 4 / tp;
    setting.tp = tp;
    setting.zero = zero;
    const SplitModel model = *buildModel(b.problem, gatherFacts(b.problem, cluster.device, {}), cluster, {}, setting);
    return updateBytes(model, w, tp > 1 ? 1 : whole);
  };
  const double all = 8.0 * 64 * 64;
  EXPECT_EQ(update(0, 1), all);
  EXPECT_EQ(update(1, 1), all / 4);
  EXPECT_EQ(update(0, 4), all / 4);
  b.problem.tensors[size_t(w)].update.products = 1;
  EXPECT_EQ(update(1, 1), all);
  EXPECT_EQ(update(0, 4), all);
}

// State in the host's memory comes by a parameter at a time, in two buckets: of what a device updates, which is all of
// w where it does not divide by the devices.
TEST(UnitCosts, StateComesByInTheShardsThatThereAre) {
  auto moved = [](int64_t rows, int zero) {
    ProblemBuilder b("one", 12);
    const int w = b.parameter("w", {rows, 64});
    b.problem.tensors[size_t(w)].optimizerBytes = 8;
    b.op("loss", "Sum", "bn->", {b.op("product", "Contract", "bk,kn->bn", {b.input("x", {12, rows}), w})});
    Setting setting;
    setting.dp = 3;
    setting.zero = zero;
    const Cluster cluster = *parseCluster("a100-80g:3");
    auto workspace = [&](Offload offload) {
      setting.offload = offload;
      const SplitModel model = *buildModel(b.problem, gatherFacts(b.problem, cluster.device, {}), cluster, {}, setting);
      return evaluate(model, std::vector<int>(model.variables.size(), 0)).predicted.memory.workspace;
    };
    return workspace(Offload::Optimizer) - workspace(Offload::None);
  };
  EXPECT_EQ(moved(3072, 0), 2 * 8.0 * 3072 * 64);
  EXPECT_EQ(moved(3072, 1), 2 * 8.0 * 1024 * 64);
  EXPECT_EQ(moved(4096, 1), 2 * 8.0 * 4096 * 64);
}

// y = x w; c = y - mean of y over samples: of y's gradient two terms stand in memory where sums over samples part them,
// in 32 bits, besides what y's own product has in hand. In 32 bits the gradient lies where one of them was.
TEST(UnitCosts, AStatisticOfSamplesPartsItsGradientsKernels) {
  auto inHand = [](bool isStatistic, const char *precision) {
    ProblemBuilder b("one", 16);
    b.problem.precision = precision;
    const int y = b.op("product", "Contract", "bk,kn->bn", {b.input("x", {16, 8}), b.parameter("w", {8, 64})});
    const int mean = isStatistic ? b.op("mean", "ReduceSum", "bn->n", {y}) : b.op("mean", "ReduceSum", "bn->b", {y});
    const int centred = b.op("centre", "Sub", isStatistic ? "bn,n->bn" : "bn,b->bn", {y, mean});
    b.op("loss", "Sum", "bn->", {b.op("out", "Contract", "bk,kn->bn", {centred, b.parameter("v", {64, 8})})});
    const Cluster cluster = *parseCluster("a100-80g:1");
    const SplitModel model = *buildModel(b.problem, gatherFacts(b.problem, cluster.device, {}), cluster, {}, {});
    return nodeWorkspace(model, model.variables[size_t(model.variableOfNode[1])], 0);
  };
  const double one = 16 * 64 * 4;
  EXPECT_EQ(inHand(true, "fp32") - inHand(false, "fp32"), one);
  EXPECT_EQ(inHand(true, "fp16") - inHand(false, "fp16"), 2 * one);
}

// y = x w, o = y v: the gradient of w is made where it stays, unless it is added to other microbatches' or scattered.
TEST(UnitCosts, AGradientIsInHandOnceWhereItStays) {
  ProblemBuilder b("two", 16);
  const int y = b.op("in", "Contract", "bk,kn->bn", {b.input("x", {16, 64}), b.parameter("w", {64, 64})});
  b.op("loss", "Sum", "bn->", {b.op("out", "Contract", "bk,kn->bn", {y, b.parameter("v", {64, 8})})});
  const ProblemFacts facts = gatherFacts(b.problem, Device(), {});
  const Cluster cluster = *parseCluster("a100-80g:4");
  auto inHand = [&](int64_t microbatches, int zero) {
    Setting setting;
    setting.dp = 4;
    setting.zero = zero;
    setting.microbatches = microbatches;
    const SplitModel model = *buildModel(b.problem, facts, cluster, {}, setting);
    return nodeWorkspace(model, model.variables[size_t(model.variableOfNode[0])], 0);
  };
  const double result = 16 / 4 * 64 * 4, weight = 64 * 64 * 4; // y's gradient; x has none
  EXPECT_EQ(inHand(1, 0), result);
  EXPECT_EQ(inHand(1, 1), result);
  EXPECT_EQ(inHand(1, 2), result + weight);
  EXPECT_EQ(inHand(2, 0), result / 2 + weight);
}

} // namespace
