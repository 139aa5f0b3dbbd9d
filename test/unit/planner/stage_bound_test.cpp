// The certificate for cuts against every cut, with every recomputation, of small models.
#include "compiler/planner/certify/stage_bound.h"
#include "compiler/planner/certify/whole_units.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/space/settings.h"
#include "test/unit/planner/each_plan.h"
#include "test/unit/planner/first_split.h"
#include "test/unit/planner/problem_builder.h"
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace cleave::planner {
namespace {

using testing::eachRecomputation;
using testing::enumerate;
using testing::FirstStages;
using testing::Plans;
using testing::ProblemBuilder;

const std::vector<Recompute> everyWay = {Recompute::None, Recompute::Selective, Recompute::Full};

// Residual blocks between products of widths of their own; the first and the last may share their weight.
Problem chain(std::mt19937 &random) {
  auto size = [&](int least, int choices) { return int64_t(1) << (least + int(random() % unsigned(choices))); };
  int64_t s = size(5, 4), h = size(7, 4), wide = h * size(0, 3);
  int blocks = 2 + int(random() % 3), before = int(random() % 2), after = 1 + int(random() % 2);
  bool isTied = random() % 2;
  ProblemBuilder b("chain", 16);
  int x = b.input("x", {16, s, h}), table = b.parameter("table", {h, h});
  if (isTied) x = b.op("first", "Contract", "bsh,hk->bsk", {x, table});
  for (int i = 0; i < before; ++i) {
    int64_t width = size(5, 6);
    std::string at = "before" + std::to_string(i);
    x = b.op(at + "/up", "Contract", "bsh,hf->bsf", {x, b.parameter(at + ".up", {h, width})});
    x = b.op(at + "/down", "Contract", "bsf,fh->bsh", {x, b.parameter(at + ".down", {width, h})});
  }
  for (int i = 0; i < blocks; ++i) {
    std::string at = "block" + std::to_string(i);
    int y = b.op(at + "/up", "Contract", "bsh,hf->bsf", {x, b.parameter(at + ".up", {h, wide})});
    y = b.op(at + "/act", "Exp", "bsf->bsf", {y});
    y = b.op(at + "/down", "Contract", "bsf,fh->bsh", {y, b.parameter(at + ".down", {wide, h})});
    x = b.op(at + "/residual", "Add", "bsh,bsh->bsh", {x, y});
  }
  for (int i = 0; i < after; ++i) {
    int64_t width = size(3, 9);
    x = b.op("after" + std::to_string(i), "Contract", "bsh,hf->bsf",
             {x, b.parameter("after" + std::to_string(i) + ".w", {h, width})});
    h = width;
  }
  int64_t first = b.problem.tensors[size_t(table)].dims[0];
  if (isTied) {
    x = b.op("back", "Contract", "bsf,fk->bsk", {x, b.parameter("back.w", {h, first})});
    x = b.op("last", "Contract", "bsh,kh->bsk", {x, table});
  }
  b.op("loss", "Sum", "bsh->", {x});
  return b.problem;
}

// A model on eight devices of which two share a node, so that four of tensor parallelism do not, with a slow network.
struct Spread {
  Problem problem;
  Cluster cluster;
  ProblemFacts facts;
  std::optional<SplitModel> model;
  std::vector<int> choice;
  ActivityCosts activity;
  StateCosts state;

  Spread(Problem given, std::mt19937 &random, const std::string &kind, Setting setting)
      : problem(std::move(given)), cluster(*parseCluster(kind + ":2x4")),
        facts(gatherFacts(problem, cluster.device, {})) {
    cluster.network.bandwidth /= double(1 + random() % 8);
    cluster.network.latency = cluster.node.latency = 0;
    cluster.device.dispatchSeconds = cluster.device.launchSeconds = 0;
    cluster.device.memoryBandwidth /= double(1 + random() % 20);
    setting.tp = 4;
    auto built = buildModel(problem, facts, cluster, {}, setting);
    if (!built) return;
    model = std::move(*built);
    for (const Variable &variable : model->variables) choice.push_back(int(random() % variable.domain()));
    if (!evaluate(*model, choice).isPossible) choice.assign(choice.size(), 0);
    activity = costActivity(*model, choice);
    state = costState(*model, choice);
  }
  StageProblem stages(const ScheduleProfile *profile) const {
    return {&*model, &activity, &state, profile, infinity, std::nullopt, everyWay, {}, {}, {}};
  }
};

// Without stages the bound is the time with what links make the passes wait, or what is computed again in no more.
TEST(StageBound, WithoutStagesNothingWaitsLess) {
  std::mt19937 random(7);
  int crowded = 0, close = 0;
  for (int round = 0; round < 40; ++round) {
    Setting setting;
    setting.dp = 2;
    setting.zero = 3;
    setting.microbatches = round % 2 ? 2 : 4;
    const Spread spread(testing::gpt({8, 16, 32, 4, 3, 512}), random, round % 4 < 2 ? "h100-80g" : "a100-80g", setting);
    if (!spread.model || !evaluate(*spread.model, spread.choice).isPossible) continue;
    StageProblem stages = spread.stages(nullptr);
    const Plans plans = enumerate(stages);
    double leanest = infinity, fastest = plans.best(infinity), bytesOfFastest = 0;
    for (auto [seconds, bytes] : plans.all) {
      leanest = std::min(leanest, bytes);
      if (seconds <= fastest) bytesOfFastest = bytes;
    }
    StagePlan plain;
    plain.firstUnits = {0};
    plain.recompute.assign(spread.model->layout->units.size(), Recompute::None);
    const bool isCrowded = evaluatePlan(stages, plain).contention > 1e-3 * fastest;
    crowded += isCrowded;
    for (double part : {2.0, 0.7, 0.3, 0.05}) {
      stages.memoryLimit = part > 1 ? 2 * bytesOfFastest : leanest + part * (bytesOfFastest - leanest);
      const double best = plans.best(stages.memoryLimit), bound = boundOfWholeUnits(stages, infinity);
      EXPECT_LE(bound, best * (1 + 1e-9)) << "round " << round << " limit " << part;
      close += isCrowded && part > 1 && bound >= 0.999 * best;
    }
  }
  EXPECT_GE(crowded, 10);
  EXPECT_GE(close, crowded * 9 / 10);
}

// No stage's messages and collectives of any cut hold each other up for less.
TEST(StageBound, MessagesHoldNoLess) {
  std::mt19937 random(8);
  int held = 0;
  for (int round = 0; round < 90; ++round) {
    Setting setting;
    setting.pp = 2;
    setting.microbatches = 4;
    setting.schedule = "1f1b";
    const Spread spread(chain(random), random, "a100-80g", setting);
    if (!spread.model || !evaluate(*spread.model, spread.choice).isPossible) continue;
    const StageProblem stages = spread.stages(scheduleProfile("1f1b", 2, 4));
    const std::vector<LeastHeld> least = leastHeld(stages);
    eachCut(int(spread.model->layout->units.size()), 2, [&](const std::vector<int> &starts) {
      for (Recompute how : everyWay) {
        StagePlan cut;
        cut.firstUnits = starts;
        cut.recompute.assign(spread.model->layout->units.size(), how);
        const PlanEvaluation plan = evaluatePlan(stages, cut);
        for (size_t s = 0; s < 2; ++s) {
          const StageDecision &stage = plan.stages[s];
          EXPECT_GE(stage.heldBySends * (1 + 1e-9), least[s].seconds) << round;
          const double later = stage.heldBySends / (stage.sendForward + stage.sendBackward);
          EXPECT_GE(later * stage.sendForward * (1 + 1e-9), least[s].sendForward) << round;
          EXPECT_GE(later * stage.sendBackward * (1 + 1e-9), least[s].sendBackward) << round;
          held += least[s].seconds > 0;
        }
      }
    });
  }
  EXPECT_GT(held, 50);
}

// The middle border of four ranks with one device each on nodes of two lies between nodes, and so does the way from the
// last to the first: no message of any cut takes less, and where the network is slow the bound knows it.
TEST(StageBound, MessagesTakeTheLinkThatLiesThere) {
  std::mt19937 random(11);
  const std::vector<std::string> kinds = {"1f1b", "gpipe", "zb-h1", "interleaved:2", "zb-v"};
  int cuts = 0, bounds = 0, near = 0;
  for (int round = 0; round < 60; ++round) {
    const Problem problem =
        testing::gpt({16, int64_t(16) << random() % 3, int64_t(64) << random() % 3, 4, int64_t(4 + random() % 3), 512});
    Cluster cluster = *parseCluster("a100-80g:2x2,software=megatron-2021");
    cluster.network.bandwidth /= double(1 + random() % 30);
    Setting setting;
    setting.pp = 4;
    setting.microbatches = 4;
    setting.schedule = kinds[size_t(round) % kinds.size()];
    const FirstStages split(problem, cluster, setting);
    StageProblem stages = split.stages(Recompute::None);
    ASSERT_TRUE(stages.profile);
    if (!split.isPossible()) continue;
    const std::vector<Unit> &units = split.first.model.layout->units;
    const LeastTransfers least = leastTransfers(stages);
    double best = infinity, bytes = 0;
    std::vector<bool> isExact(size_t(stages.stages()), false);
    eachCut(int(units.size()), stages.stages(), [&](const std::vector<int> &starts) {
      StagePlan cut;
      cut.firstUnits = starts;
      cut.recompute.assign(units.size(), Recompute::None);
      const PlanEvaluation plan = evaluatePlan(stages, cut);
      for (size_t s = 0; s < isExact.size(); ++s) {
        const StageDecision &stage = plan.stages[s];
        const bool isLast = s + 1 == isExact.size(), turns = !isLast && stage.rank == plan.stages[s + 1].rank;
        EXPECT_GE(turns ? 0 : stage.sendForward * (1 + 1e-9), least.sendForward[s]) << setting.schedule;
        EXPECT_GE(stage.sendBackward * (1 + 1e-9), least.sendBackward[s]) << setting.schedule;
        isExact[s] = isExact[s] || isLast || turns || stage.sendForward <= least.sendForward[s] * (1 + 1e-9);
      }
      ++cuts;
      best = std::min(best, plan.predicted.stepSeconds);
      bytes = std::max(bytes, plan.predicted.memory.total());
    });
    for (double limit : {infinity, 2 * bytes}) { // each cut by itself, and all together
      stages.memoryLimit = limit;
      StageRelaxation relaxation(stages, infinity);
      relaxation.tighten(60, {});
      const double whole = boundOfWholeUnits(stages, infinity);
      EXPECT_LE(relaxation.bound(), best * (1 + 1e-9)) << round << setting.schedule;
      EXPECT_LE(whole, best * (1 + 1e-9)) << round << setting.schedule;
      ++bounds;
      near += std::max(whole, relaxation.bound()) >= 0.95 * best;
    }
    EXPECT_GE(std::ranges::count(isExact, true) * 2, ptrdiff_t(isExact.size())) << setting.schedule;
  }
  EXPECT_GE(cuts, 500);
  EXPECT_GE(near * 10, bounds * 8);
}

// Where collectives over gradients and parameters take long and nothing hides all of them, computing again hides more;
// of each cut that is known to be no more than its passes allow.
TEST(StageBound, WhatIsComputedAgainHidesNoMore) {
  std::mt19937 random(12);
  int checked = 0, near = 0, better = 0;
  for (int round = 0; round < 60; ++round) {
    const Problem problem = chain(random);
    Cluster cluster = *parseCluster("h100-80g:1x4");
    cluster.network.bandwidth /= double(1 + random() % 40);
    Setting setting;
    setting.pp = setting.dp = 2;
    setting.zero = round % 4;
    setting.microbatches = 8;
    setting.schedule = round % 3 == 0 ? "zb-h1" : round % 3 == 1 ? "1f1b" : "gpipe";
    const FirstStages split(problem, cluster, setting);
    ASSERT_TRUE(split.isPossible());
    StageProblem stages = split.stages(std::nullopt, everyWay);
    stages.memoryLimit = 1e18; // each cut is timed
    const double best = enumerate(stages).best(infinity);
    stages.recompute = Recompute::None;
    const double plain = enumerate(stages).best(infinity);
    stages.recompute.reset();
    better += best < plain * (1 - 1e-6);
    const double bound = boundStages(stages, 2 * best, 60, {}).seconds;
    EXPECT_LE(bound, best * (1 + 1e-9)) << setting.str();
    near += bound >= 0.98 * best;
    ++checked;
  }
  EXPECT_EQ(checked, 60);
  EXPECT_GE(near, 45);
  EXPECT_GE(better, 1); // else nothing is tested
}

TEST(StageBound, NoCutWithinTheMemoryIsFaster) {
  std::mt19937 random(3);
  const std::vector<std::string> kinds = {"1f1b", "gpipe", "interleaved:2", "zb-h1", "zb-v"};
  int checked = 0, tight = 0, feasible = 0, again = 0, near = 0, onSharedCores = 0, leftByFormula = 0, nearCut = 0;
  for (int round = 0; round < 90; ++round) {
    Problem problem = chain(random);
    Result<Cluster> cluster =
        parseCluster(round % 2 ? "a100-80g:2x4,software=megatron-2021" : "v100-32g:8,software=megatron-2021");
    ASSERT_TRUE(cluster);
    if (round >= 60) cluster->device.coreShare = round % 4 < 2 ? 0.5 : 0.25; // they take turns on cores
    Constraints constraints;
    ProblemFacts facts = gatherFacts(problem, cluster->device, constraints);
    Setting setting;
    setting.pp = round % 3 == 0 ? 4 : 2;
    setting.tp = random() % 2 ? 2 : 1;
    setting.dp = 8 / setting.pp / setting.tp;
    setting.zero = setting.dp > 1 ? int(random() % 4) : 0;
    if (round % 5 == 0) setting.offload = Offload::Optimizer;
    setting.microbatches = round % 4 == 0 ? 4 : 8;
    setting.schedule = kinds[random() % kinds.size()];
    if (setting.microbatches % setting.pp != 0 || 16 / setting.microbatches % setting.dp != 0) continue;
    auto model = buildModel(problem, facts, *cluster, constraints, setting);
    ASSERT_TRUE(model) << model.status().message();
    const ScheduleProfile *profile = scheduleProfile(setting.schedule, setting.pp, setting.microbatches);
    if (!profile || profile->stages > int(model->layout->units.size())) continue;
    std::vector<int> choice;
    for (const Variable &variable : model->variables) choice.push_back(int(random() % variable.domain()));
    if (!evaluate(*model, choice).isPossible) choice.assign(choice.size(), 0);
    if (!evaluate(*model, choice).isPossible) continue;
    ActivityCosts activity = costActivity(*model, choice);
    StateCosts state = costState(*model, choice);
    StageProblem stages{&*model, &activity, &state, profile, infinity, std::nullopt, everyWay, {}, {}, {}};
    if (round % 5 == 0) stages.recompute = round % 2 ? Recompute::None : Recompute::Full;
    // The mean rank does its passes and, once a step, its update.
    const Recompute plain = stages.recompute.value_or(Recompute::None);
    double mean = 0;
    for (const Unit &unit : model->layout->units) {
      const Cost &own = state.kinds[size_t(unit.kind)];
      mean += double(setting.microbatches) * activity.of(unit.kind, plain).seconds() + own.update + own.exposed;
    }
    std::optional<StagePlan> planned = planStages(stages);
    ASSERT_TRUE(planned);
    EXPECT_GE(planned->bound, mean / double(setting.pp) * (1 - 1e-9)) << setting.str();
    // A plan that is slower by formula than is of interest is left, but nothing else.
    for (double part : {0.5, 0.9, 0.999, 1.001}) {
      const std::optional<StagePlan> asked = planStages(stages, {.formula = part * planned->seconds});
      ASSERT_TRUE(asked);
      leftByFormula += asked->isPruned;
      if (part > 1) EXPECT_FALSE(asked->isPruned) << setting.str();
      if (!asked->isPruned) EXPECT_EQ(asked->seconds, planned->seconds);
    }
    StageProblem given = stages; // any cut
    std::vector<int> later(model->layout->units.size() - 1);
    std::iota(later.begin(), later.end(), 1);
    given.firstUnits = {0};
    std::ranges::sample(later, std::back_inserter(given.firstUnits), profile->stages - 1, random);
    const double ofCut = enumerate(given).best(infinity), leastOfCut = planStages(given)->bound;
    EXPECT_LE(leastOfCut, ofCut * (1 + 1e-9)) << "round " << round << " " << setting.str();
    nearCut += leastOfCut >= 0.9 * ofCut;
    Plans plans = enumerate(stages);
    double leanest = infinity, fastest = infinity, bytesOfFastest = 0;
    for (auto [seconds, bytes] : plans.all) {
      leanest = std::min(leanest, bytes);
      if (seconds < fastest) bytesOfFastest = bytes;
      fastest = std::min(fastest, seconds);
    }
    SplitModel lowest = *model, highest = *model;
    lowest.setting.zero = 0;
    highest.setting.zero = setting.dp > 1 ? 3 : 0;
    const ActivityCosts leastActivity = costActivity(lowest, choice);
    const StateCosts leastState = costState(highest, choice);
    for (double part : {2.0, 0.5, 0.05, -0.2}) {
      stages.memoryLimit = part > 1 ? 2 * bytesOfFastest : leanest + part * (bytesOfFastest - leanest);
      double best = plans.best(stages.memoryLimit);
      if (best < infinity) EXPECT_TRUE(hasRoomForState(*model, state, stages.memoryLimit, stages.ranks()));
      StageProblem any = stages;
      any.model = &highest;
      any.activity = &leastActivity;
      any.state = &leastState;
      bool isTight = false;
      const double ofAny = leastOfAnyStage(any, infinity, isTight);
      EXPECT_LE(ofAny, best * (1 + 1e-9)) << "round " << round << " " << setting.str() << " limit " << part;
      near += best < infinity && ofAny >= 0.7 * best;
      any.memoryLimit = infinity;
      const double withRoom = leastOfAnyStage(any, infinity, isTight);
      any.memoryLimit = 0.5 * leanest;
      again += leastOfAnyStage(any, infinity, isTight) > withRoom;
      double whole = boundOfWholeUnits(stages, infinity);
      EXPECT_LE(whole, best * (1 + 1e-9)) << "round " << round << " " << setting.str() << " limit " << part;
      // Asked whether it is over a goal, it says so or gives what it can.
      double asked = boundOfWholeUnits(stages, 0.9 * whole);
      EXPECT_GE(asked, 0.9 * whole * (1 - 1e-9));
      EXPECT_LE(asked, best * (1 + 1e-9));
      for (double incumbent : {infinity, 1.01 * best}) {
        StageRelaxation relaxation(stages, incumbent);
        relaxation.tighten(60, {});
        StageBound all = boundStages(stages, incumbent, 60, {});
        EXPECT_LE(all.seconds, best * (1 + 1e-9)) << "round " << round << " " << setting.str() << " limit " << part;
        ++checked;
        EXPECT_LE(relaxation.bound(), best * (1 + 1e-9))
            << "round " << round << " " << setting.str() << " limit " << part << " incumbent " << incumbent;
        // A bound that cannot rise above a known one is left, and nothing else.
        for (double known : {0.9 * relaxation.bound(), 0.999 * relaxation.bound(), 1.01 * relaxation.bound()}) {
          StageRelaxation other(stages, incumbent);
          other.tighten(60, {.known = known});
          EXPECT_GE(std::max(known, other.bound()), relaxation.bound() * (1 - 1e-3)) << setting.str();
        }
        if (best == infinity) continue;
        if (cluster->device.coreShare < 1) onSharedCores += all.seconds >= 0.95 * best;
        ++feasible;
        tight += std::max(whole, all.seconds) >= 0.97 * best;
      }
    }
  }
  EXPECT_GE(checked, 100);
  EXPECT_GE(near, 20);
  EXPECT_GE(onSharedCores, 20);
  EXPECT_GE(leftByFormula, 60);
  EXPECT_GE(nearCut, 20);
  EXPECT_GE(again, 20); // half of what is needed leaves no room, or makes all stages compute something again
  EXPECT_GE(tight * 10,
            feasible * 6); // a mixture of recomputations can be faster than each of them
}

// Each rank of a given cut computes as much again as the best choice of ways for its units, where blocks are alike.
TEST(StageBound, OfACutRanksComputeWholeUnitsAgain) {
  int count = 0, exact = 0, again = 0;
  for (const char *kind : {"1f1b", "gpipe", "interleaved:2", "looped-bfs:2"})
    for (int64_t microbatches : {4, 8}) {
      const Problem problem = testing::gpt({8, 16, 32, 4, 7, 64});
      Result<Cluster> cluster = parseCluster("a100-80g:2");
      Setting setting;
      setting.pp = 2;
      setting.microbatches = microbatches;
      setting.schedule = kind;
      const FirstStages split(problem, *cluster, setting);
      if (!split.isPossible()) continue;
      StageProblem stages = split.stages({}, everyWay);
      const std::vector<Unit> &units = stages.model->layout->units;
      const bool hasChunks = stages.stages() > 2;
      stages.firstUnits = hasChunks ? std::vector<int>{0, 2, 4, 6} : std::vector<int>{0, 4};
      // By rank: seconds again and bytes of every choice.
      std::vector<std::vector<std::pair<double, double>>> choices(2);
      eachRecomputation(units, everyWay, [&](const std::vector<Recompute> &recompute) {
        StagePlan plan;
        plan.firstUnits = stages.firstUnits;
        plan.recompute = recompute;
        const PlanEvaluation evaluation = evaluatePlan(stages, plan);
        std::vector<double> seconds(2, 0.0), bytes(2, 0.0);
        for (size_t s = 0; s < stages.firstUnits.size(); ++s) {
          const auto rank = size_t(stages.rankOf(int(s)));
          bytes[rank] = evaluation.stages[s].memory.total();
          const size_t end = s + 1 < stages.firstUnits.size() ? size_t(stages.firstUnits[s + 1]) : units.size();
          for (auto u = size_t(stages.firstUnits[s]); u < end; ++u)
            seconds[rank] += stages.activity->of(units[u].kind, recompute[u]).seconds() -
                             stages.activity->of(units[u].kind, Recompute::None).seconds();
        }
        for (size_t rank = 0; rank < 2; ++rank) choices[rank].emplace_back(seconds[rank], bytes[rank]);
      });
      for (double part : {0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95}) {
        double leanest = 0, plain = 0;
        for (const auto &own : choices) {
          const auto bytes = [](const auto &choice) { return choice.second; };
          leanest = std::max(leanest, bytes(*std::ranges::min_element(own, {}, bytes)));
          plain = std::max(plain, bytes(own.front()));
        }
        stages.memoryLimit = leanest + part * (plain - leanest);
        const std::vector<double> found = leastAgainOfCut(stages);
        for (size_t rank = 0; rank < 2; ++rank) {
          double least = infinity;
          for (auto [seconds, bytes] : choices[rank])
            if (bytes <= stages.memoryLimit) least = std::min(least, seconds);
          EXPECT_LE(found[rank], least * (1 + 1e-9)) << kind << part;
          ++count;
          again += least > 0;
          exact += least > 0 && found[rank] >= least * (1 - 1e-6);
        }
      }
    }
  EXPECT_GE(again, 20) << count;
  EXPECT_GE(exact * 4, again * 3) << again;
}

// Paths that another bound met, with another memory, are paths here: nothing is faster, and few programs do.
TEST(StageBound, BeginsWithPathsOfOthers) {
  std::mt19937 random(14);
  int count = 0, higher = 0, lower = 0;
  for (int round = 0; round < 24; ++round) {
    const Problem problem = chain(random);
    Result<Cluster> cluster = parseCluster("v100-32g:2");
    Setting setting;
    setting.pp = 2;
    setting.microbatches = 8;
    setting.schedule = round % 2 ? "interleaved:2" : "1f1b";
    const FirstStages split(problem, *cluster, setting);
    if (!split.isPossible()) continue;
    StageProblem stages = split.stages({}, everyWay);
    const Plans plans = enumerate(stages);
    double leanest = infinity, most = 0;
    for (auto [seconds, bytes] : plans.all) leanest = std::min(leanest, bytes), most = std::max(most, bytes);
    KnownPaths known;
    StageRelaxation before(stages, infinity, &known);
    before.tighten(60, {});
    before.keepPaths();
    EXPECT_FALSE(known.empty());
    stages.memoryLimit = leanest + 0.3 * (most - leanest);
    StageRelaxation with(stages, infinity, &known), without(stages, infinity);
    with.tighten(3, {});
    without.tighten(3, {});
    EXPECT_LE(with.bound(), plans.best(stages.memoryLimit) * (1 + 1e-9)) << round;
    ++count;
    higher += with.bound() > without.bound() * (1 + 1e-5);
    lower += with.bound() < without.bound() * (1 - 1e-5);
  }
  EXPECT_GE(count, 12);
  EXPECT_GT(higher, 2 * lower) << higher << " " << lower;
}

// Stages of chunks that take turns on a rank, of units that differ: the fastest cut is no cut with the shortest slowest
// stage. With room for everything it is found, and known to be it.
TEST(StageBound, OfFewCutsTheFastestIsKnown) {
  std::mt19937 random(11);
  int uneven = 0;
  for (const char *kind : {"1f1b", "gpipe", "interleaved:2", "interleaved:3", "looped-bfs:2", "looped-bfs:3", "zb-h1",
                           "zb-h2", "zb-v", "dualpipev"})
    for (int round = 0; round < 4; ++round) {
      Problem problem = chain(random);
      Result<Cluster> cluster = parseCluster("v100-32g:2");
      cluster->device.dispatchSeconds = 0;
      Setting setting;
      setting.pp = 2;
      setting.microbatches = round % 2 ? 4 : 8;
      setting.schedule = kind;
      const FirstStages split(problem, *cluster, setting);
      if (!split.isPossible()) continue;
      for (bool isOpen : {false, true}) {
        const StageProblem stages = isOpen ? split.stages({}, everyWay) : split.stages(Recompute::None);
        const double best = enumerate(stages).best(infinity);
        const StageBound bound = boundStages(stages, infinity, 60, {});
        EXPECT_NEAR(bound.seconds, best, 1e-9 * best) << kind << round;
        ASSERT_FALSE(bound.cuts.empty());
        EXPECT_TRUE(bound.cuts[0].fits);
        const StagePlan plan = planCut(stages, bound.cuts[0].firstUnits);
        EXPECT_NEAR(evaluatePlan(stages, plan).predicted.stepSeconds, best, 1e-9 * best) << kind << round;
        // With a limit just over it that is all that is left; at it, nothing is.
        const auto few = timeEachCut(stages, best * (1 + 1e-9)), none = timeEachCut(stages, best * (1 - 1e-9));
        ASSERT_TRUE(few && none);
        EXPECT_GE(few->size(), 1u);
        EXPECT_TRUE(none->empty());
        const std::optional<StagePlan> formula = planStages(stages);
        uneven += evaluatePlan(stages, *formula).predicted.stepSeconds > 1.02 * best;
      }
    }
  EXPECT_GE(uneven, 4);
}

// Where devices take turns on cores, the fastest of few cuts is known where nothing is computed again.
TEST(StageBound, OfFewCutsOnSharedCoresTheFastestIsKnown) {
  std::mt19937 random(12);
  int count = 0;
  for (const char *kind : {"1f1b", "gpipe", "interleaved:2", "looped-bfs:2", "zb-h1", "zb-h2", "zb-v", "dualpipev"})
    for (int round = 0; round < 12; ++round) {
      Problem problem = chain(random);
      Result<Cluster> cluster = parseCluster("v100-32g:4");
      cluster->device.dispatchSeconds = 0;
      cluster->device.coreShare = round % 2 ? 0.25 : 0.5;
      cluster->node.latency *= round % 3 ? 1 : 10;
      if (round % 4 == 0) cluster->device.updateTraffic *= 30; // ranks do much after their passes
      if (round % 4 == 1) cluster->device.overlap = cluster->device.gradientOverlap = 0;
      Setting setting;
      setting.pp = setting.dp = 2;
      setting.microbatches = int64_t(1) << (round % 3);
      setting.schedule = kind;
      const FirstStages split(problem, *cluster, setting);
      if (!split.isPossible()) continue;
      const StageProblem stages = split.stages({}, everyWay), plain = split.stages(Recompute::None);
      const double best = enumerate(stages).best(infinity), ofPlain = enumerate(plain).best(infinity);
      EXPECT_NEAR(boundStages(plain, infinity, 60, {}).seconds, ofPlain, 1e-9 * ofPlain) << kind << round;
      const double bound = boundStages(stages, infinity, 60, {}).seconds;
      EXPECT_LE(bound, best * (1 + 1e-9)) << kind << round;
      ++count;
    }
  EXPECT_GE(count, 50);
}

} // namespace
} // namespace cleave::planner
