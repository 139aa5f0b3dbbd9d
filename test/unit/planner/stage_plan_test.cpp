// Cuts into stages by formula, against all cuts there are, simulated.
#include "test/unit/planner/each_plan.h"
#include "test/unit/planner/first_split.h"
#include "test/unit/planner/problem_builder.h"
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

namespace cleave::planner {
namespace {

// Layers that are wide and narrow in turns, with their loss.
Problem wideAndNarrow(const std::vector<int64_t> &widths) {
  constexpr int64_t batch = 64;
  testing::ProblemBuilder b("widths", batch);
  int y = b.input("x", {batch, widths[0]});
  for (size_t i = 1; i < widths.size(); ++i)
    y = b.op(fmt::format("layer{}", i), "Contract", "bk,kn->bn",
             {y, b.parameter(fmt::format("w{}", i), {widths[i - 1], widths[i]})});
  b.op("loss", "Sum", "bm->", {y});
  return b.problem;
}

// Where messages take longer than passes, equal stages are not the fastest: the cut is where little crosses.
TEST(StagePlan, SlowLinksAreCrossedWhereLayersAreNarrow) {
  Setting setting;
  setting.microbatches = 8;
  Cluster fast = *parseCluster("a100-80g:1x4"), slow = fast;
  fast.network.bandwidth = 1e12; // bytes/s
  slow.network.bandwidth = 1e6;
  const Problem problem = wideAndNarrow({64, 4096, 2800, 3968, 80, 3840, 2400, 3000, 88, 4096, 2000, 3200, 64});
  int equal = 0;
  for (int64_t ranks : {2, 3, 4})
    for (const char *schedule : {"1f1b", "gpipe", "zb-h1"}) {
      setting.pp = ranks;
      setting.schedule = schedule;
      const testing::FirstStages ofFast(problem, fast, setting), ofSlow(problem, slow, setting);
      ASSERT_TRUE(ofSlow.isPossible());
      const StageProblem stages = ofSlow.stages(Recompute::None);
      const auto secondsOf = [&](const std::vector<int> &cut) {
        return evaluatePlan(stages, planCut(stages, cut)).predicted.stepSeconds;
      };
      double best = std::numeric_limits<double>::infinity();
      testing::eachCut(int(ofSlow.first.model.layout->units.size()), int(ranks),
                       [&](const std::vector<int> &cut) { best = std::min(best, secondsOf(cut)); });
      EXPECT_LE(secondsOf(planStages(stages)->firstUnits), 1.25 * best) << schedule << " " << ranks;
      equal += secondsOf(planStages(ofFast.stages(Recompute::None))->firstUnits) > 1.5 * best;
    }
  EXPECT_GE(equal, 6); // of 9 are slow with equal stages
}

// The bytes that pass between units differ: a stage that begins one unit later may receive more.
Problem widths(std::mt19937 &random) {
  testing::ProblemBuilder b("widths", 16);
  int64_t h = 64;
  int x = b.input("x", {16, 32, h});
  for (int i = 0; i < 6; ++i) {
    const int64_t width = int64_t(32) << (random() % 6);
    const std::string at = "op" + std::to_string(i);
    x = b.op(at, "Contract", "bsh,hf->bsf", {x, b.parameter(at + ".w", {h, width})});
    h = width;
  }
  b.op("loss", "Sum", "bsh->", {x});
  return b.problem;
}

TEST(StagePlan, ACutThatFitsIsFound) {
  std::mt19937 random(13);
  int fits = 0, found = 0;
  for (int round = 0; round < 60; ++round) {
    Problem problem = widths(random);
    Result<Cluster> cluster = parseCluster(round % 2 ? "v100-32g:4" : "cpu:4");
    Setting setting;
    setting.pp = 2 + round % 3 / 2 * 2;
    setting.dp = 4 / setting.pp;
    setting.microbatches = 4;
    setting.schedule = "1f1b";
    const testing::FirstStages split(problem, *cluster, setting);
    if (!split.isPossible()) continue;
    StageProblem stages = split.stages(Recompute::None);
    const testing::Plans plans = testing::enumerate(stages);
    for (auto [seconds, bytes] : plans.all) {
      stages.memoryLimit = bytes * (1 + 1e-9);
      const std::optional<StagePlan> plan = planStages(stages);
      ASSERT_TRUE(plan);
      ++fits;
      found += plan->fits;
    }
  }
  EXPECT_GE(fits, 200);
  EXPECT_GE(found * 100, fits * 98) << found << " of " << fits;
}

} // namespace
} // namespace cleave::planner
