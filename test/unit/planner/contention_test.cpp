// Collectives that run beside a step's passes, and those that the passes wait for, on the same link.
#include "compiler/planner/cost/step_evaluation.h"
#include "compiler/planner/explain/breakdown.h"
#include "compiler/planner/search/driver/search.h"
#include "test/unit/planner/problem_builder.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace cleave::planner {
namespace {

struct Work {
  double compute = 0, sameLink = 0, otherLink = 0, beside = 0; // seconds of a step
};

// A step in small turns of computing and waiting, one event after the other. The work beside gets `overlap` of the time
// where a device computes, all of it where the passes use another link, and half of their link where it is theirs; what
// is left then comes at the end.
double simulated(const Work &work, double overlap) {
  constexpr int turns = 20000;
  double left = work.beside, time = 0;
  auto pass = [&](double seconds, double rate, bool isShared) {
    const double both = std::min(seconds, left / rate); // of the passes' seconds
    left = std::max(0.0, left - both * rate);
    time += seconds + (isShared ? both : 0);
  };
  for (int turn = 0; turn < turns; ++turn) {
    pass(work.compute / turns, overlap, false);
    pass(work.sameLink / turns, 1, true); // a second takes two, in which the other comes on by one
    pass(work.otherLink / turns, 1, false);
  }
  return time + left;
}

TEST(Contention, IsThatOfASimulationInSmallTurns) {
  Result<Cluster> cluster = parseCluster("h100-80g:8x2");
  const double overlap = cluster->device.overlap;
  SplitModel model;
  model.cluster = &*cluster;
  model.setting.zero = 3; // hides behind both passes
  std::mt19937 random(1);
  auto draw = [&](double most) { return most * double(random() % 10000 + 1) / 10000; };
  int longer = 0, withRest = 0;
  for (int trial = 0; trial < 300; ++trial) {
    Work work{draw(2), draw(1), trial % 2 ? 0 : draw(1), draw(3)};
    const double room = overlap * work.compute;
    if (work.otherLink > 0) work.beside = std::min(work.beside, room); // what nothing hides does not use waits there
    PassSeconds passes{0.4 * work.compute, 0.6 * work.compute, 0.3 * (work.sameLink + work.otherLink),
                       0.7 * (work.sameLink + work.otherLink)};
    passes.linksForward = {0.3 * work.sameLink, 0.3 * work.otherLink};
    passes.linksBackward = {0.7 * work.sameLink, 0.7 * work.otherLink};
    const Hidden hidden = hide(model, {work.beside, 0, {work.beside, 0}}, passes);
    const double all = work.compute + work.sameLink + work.otherLink;
    const double seconds = all + work.beside - hidden.seconds + hidden.contention;
    const double expected = simulated(work, overlap);
    EXPECT_NEAR(seconds, expected, 1e-3 * expected) << trial;
    longer += hidden.contention > 0.01 * all;
    withRest += work.beside > room;
  }
  EXPECT_GE(longer, 100);
  EXPECT_GE(withRest, 30);
}

// The same of what a stage sends meanwhile, which is through before the passes end. Nothing slows it while they
// compute.
TEST(Contention, OfWhatStagesSendIsThatOfASimulationInSmallTurns) {
  Result<Cluster> cluster = parseCluster("h100-80g:8x2");
  std::mt19937 random(2);
  auto draw = [&](double most) { return most * double(random() % 10000 + 1) / 10000; };
  int longer = 0;
  for (int trial = 0; trial < 300; ++trial) {
    Work work{draw(2), draw(1), draw(1), 0};
    const double all = work.compute + work.sameLink + work.otherLink;
    work.beside = draw(all);
    Cost passes;
    passes.communicationForward = 0.3 * (work.sameLink + work.otherLink);
    passes.communication = work.sameLink + work.otherLink;
    passes.forward = 0.4 * work.compute + passes.communicationForward;
    passes.backwardInput = 0.2 * work.compute + 0.7 * passes.communication;
    passes.backwardWeight = 0.4 * work.compute;
    passes.links = {work.otherLink, work.sameLink}; // stages are on different nodes
    passes.linksForward = {0.3 * work.otherLink, 0.3 * work.sameLink};
    const double held = holdBySends(*cluster, {0, work.beside}, passes);
    EXPECT_NEAR(passes.seconds(), all + held, 1e-9 * all);
    EXPECT_NEAR(passes.compute(), work.compute, 1e-9 * all);
    EXPECT_NEAR(all + held, simulated(work, 1), 1e-3 * all) << trial;
    longer += held > 0.05 * all;
  }
  EXPECT_GE(longer, 100);
}

// Two kinds of collectives beside the passes, one inside nodes and one between them, of each bucket one after the
// other: when the last is done after `compute` seconds of passes, in which buckets become ready. With one lane
// everything goes one after the other, with two each kind.
double lastBucket(double compute, double overlap, double inside, double between, bool areApart) {
  constexpr int buckets = 1000;
  auto after = [&](double start, double seconds) { // `overlap` of the time while the passes compute
    const double room = std::max(0.0, compute - start) * overlap;
    return seconds <= room ? start + seconds / overlap : std::max(start, compute) + seconds - room;
  };
  double node = 0, network = 0; // when they are free
  for (int i = 1; i <= buckets; ++i) {
    node = after(std::max({node, areApart ? 0 : network, compute * i / buckets}), inside / buckets);
    network = after(std::max(network, node), between / buckets);
  }
  return network;
}

// They are priced as one after the other, which takes as long as together where they use one link. On two links they
// could run side by side, which saves no more than the shorter of them takes.
TEST(Contention, OfTwoBesideThePassesIsNotUnderPriced) {
  Result<Cluster> cluster = parseCluster("h100-80g:8x2");
  SplitModel model;
  model.cluster = &*cluster;
  model.setting.zero = 3;
  std::mt19937 random(3);
  auto draw = [&](double most) { return most * double(random() % 10000 + 1) / 10000; };
  int withRest = 0, saving = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const double compute = draw(2), inside = draw(2), between = draw(2), all = inside + between;
    const Hidden hidden = hide(model, {all, 0, {inside, between}}, {0, compute});
    const double exposed = all - hidden.seconds + hidden.contention;
    const double one = lastBucket(compute, cluster->device.overlap, inside, between, false) - compute;
    const double apart = lastBucket(compute, cluster->device.overlap, inside, between, true) - compute;
    EXPECT_NEAR(exposed, one, 0.003 * (all + compute)) << trial;
    EXPECT_LE(apart, one * (1 + 1e-9)) << trial;
    EXPECT_LE(one - apart, std::min(inside, between) * (1 + 1e-9)) << trial;
    withRest += exposed > 0;
    saving += one - apart > 0.1 * one;
  }
  EXPECT_GE(withRest, 100);
  EXPECT_GE(saving, 30);
}

// Only the last microbatch's backward pass has a reduction beside it, and only its waiting gets longer.
TEST(Contention, IsOfThePassesThatReductionsMayHideIn) {
  Result<Cluster> cluster = parseCluster("h100-80g:8x2");
  SplitModel model;
  model.cluster = &*cluster;
  model.setting.microbatches = 4;
  const double speed = cluster->device.gradientOverlap;
  const PassSeconds passes{4, 8, 2, 2, {2, 0}, {2, 0}};
  // A microbatch's backward pass: 2 s of compute, 0.5 of waiting.
  const double turn = speed * 2 + 0.5;
  EXPECT_NEAR(hide(model, {1, 0, {1, 0}}, passes).contention, 0.5 / turn, 1e-12);
  EXPECT_NEAR(hide(model, {1, 0, {0.25, 0.75}}, passes).contention, 0.25 * 0.5 / turn, 1e-12);
  EXPECT_EQ(hide(model, {1, 0, {0, 1}}, passes).contention, 0); // over the network
  EXPECT_EQ(hide(model, {4, 0, {4, 0}}, passes).contention, 0); // busy until the end with or without
  // Groups that use both links at once: the waiting takes twice as long at most.
  const PassSeconds onBoth{4, 8, 2, 2, {2, 2}, {2, 2}};
  EXPECT_NEAR(hide(model, {1, 0, {1, 1}}, onBoth).contention, 0.5 / turn, 1e-12);
  model.setting.zero = 1; // also beside the first forward pass: 1 s, 0.5 s
  EXPECT_NEAR(hide(model, {1, 0, {1, 0}}, passes).contention, 1 / (speed * 3 + 1), 1e-12);
  model.setting.zero = 3, model.setting.lowerZero = 0; // half of it beside all, half as in the beginning
  const double all = cluster->device.overlap * 12 + 4;
  EXPECT_NEAR(hide(model, {1, 0.5, {1, 0}}, passes).contention, 0.5 * 4 / all + 0.5 * 0.5 / turn, 1e-12);
  Cluster shared = *cluster;
  shared.device.overlap = shared.device.gradientOverlap = 0;
  model.cluster = &shared;
  EXPECT_EQ(hide(model, {1, 0, {1, 0}}, passes).contention, 0);
}

struct Planned {
  Decision decision;
  PlanEvaluation evaluation;
  std::vector<TimePart> parts;
  double behindProducts = 0, contention = 0; // seconds
  double held = 0;                           // of a microbatch, all stages
};

Planned plannedOn(const char *preset, const char *mesh, const char *order) {
  const Problem problem = testing::gpt({64, 64, 512, 8, 4, 512});
  Result<Cluster> cluster = parseCluster(preset);
  cluster->device.dispatchSeconds = 0;
  Result<Constraints> constraints =
      parseConstraints({.mesh = mesh, .meshOrder = order, .zero = "0", .microbatches = "2"}, *cluster);
  EXPECT_TRUE(constraints) << constraints.status().message();
  Result<Decision> decision = solve(problem, *cluster, *constraints, {.alternatives = false});
  EXPECT_TRUE(decision) << decision.status().message();
  Result<DecidedModel> decided = decidedModel(problem, *cluster, *decision);
  EXPECT_TRUE(decided) << decided.status().message();
  Breakdown parts = breakdown(*decided);
  Planned planned{*decision, decided->evaluate(), std::move(parts.time), parts.hiddenBehindProducts, parts.contention};
  for (const StageDecision &stage : planned.evaluation.stages) planned.held += stage.heldBySends;
  return planned;
}

TEST(Contention, IsOfGroupsOnTheSameLink) {
  // Tensor groups fill nodes, samples are on different nodes; then both are in each node, or both between nodes.
  EXPECT_EQ(plannedOn("h100-80g:4x2", "dp=2,tp=4", "dp,tp").evaluation.contention, 0);
  EXPECT_GT(plannedOn("h100-80g:8", "dp=2,tp=4", "dp,tp").evaluation.contention, 0);
  EXPECT_GT(plannedOn("h100-80g:1x8", "dp=2,tp=4", "dp,tp").evaluation.contention, 0);
  // Stages' messages: beside reductions between nodes, beside reductions inside nodes and the other way round.
  EXPECT_GT(plannedOn("h100-80g:1x4", "pp=2,dp=2", "pp,dp").evaluation.contention, 0);
  EXPECT_EQ(plannedOn("h100-80g:2x2", "pp=2,dp=2", "pp,dp").evaluation.contention, 0);
  EXPECT_EQ(plannedOn("h100-80g:2x2", "pp=2,dp=2", "dp,pp").evaluation.contention, 0);
  // And beside what is waited for: groups over tp in the same node, in other nodes, on other nodes too.
  EXPECT_GT(plannedOn("h100-80g:4", "pp=2,tp=2", "pp,tp").held, 0);
  EXPECT_EQ(plannedOn("h100-80g:2x2", "pp=2,tp=2", "pp,tp").held, 0);
  EXPECT_EQ(plannedOn("h100-80g:2x2", "pp=2,tp=2", "tp,pp").held, 0);
  EXPECT_GT(plannedOn("h100-80g:1x4", "pp=2,tp=2", "pp,tp").held, 0);
  EXPECT_EQ(plannedOn("h100-80g:1x4", "pp=2,dp=2", "pp,dp").held, 0);
  EXPECT_EQ(plannedOn("cpu:4", "pp=2,tp=2", "pp,tp").held, 0);
  EXPECT_EQ(plannedOn("a100-80g:8,software=megatron-2021", "dp=2,tp=4", "dp,tp").evaluation.contention,
            0); // reductions hide behind nothing
  EXPECT_EQ(plannedOn("cpu:4", "dp=2,tp=2", "dp,tp").evaluation.contention, 0);
}

TEST(Contention, IsPartOfTheStepsParts) {
  for (auto [preset, mesh, order] : {std::tuple{"h100-80g:8", "dp=2,tp=4", "dp,tp"},
                                     {"h100-80g:1x4", "pp=2,dp=2", "pp,dp"},
                                     {"h100-80g:8", "pp=2,dp=2,tp=2", "pp,dp,tp"}}) {
    const Planned planned = plannedOn(preset, mesh, order);
    const Predicted &predicted = planned.evaluation.predicted;
    ASSERT_GT(planned.contention, 0);
    EXPECT_EQ(planned.held > 0, std::string(mesh) == "pp=2,dp=2,tp=2");
    EXPECT_NEAR(predicted.stepSeconds,
                predicted.computeSeconds + predicted.exposedCommunicationSeconds + predicted.bubbleSeconds,
                1e-9 * predicted.stepSeconds);
    double compute = 0, communication = 0, beside = 0;
    for (const TimePart &part : planned.parts) {
      compute += part.computeSeconds;
      communication += part.communicationSeconds;
      beside += part.besideSeconds;
    }
    EXPECT_NEAR(compute, predicted.computeSeconds, 1e-9 * predicted.stepSeconds);
    EXPECT_NEAR(communication, predicted.exposedCommunicationSeconds, 1e-9 * predicted.stepSeconds);
    EXPECT_NEAR(beside, predicted.hiddenCommunicationSeconds + planned.behindProducts, 1e-9 * predicted.stepSeconds);
    EXPECT_NEAR(planned.decision.predicted.stepSeconds, predicted.stepSeconds, 1e-9 * predicted.stepSeconds);
  }
}

} // namespace
} // namespace cleave::planner
