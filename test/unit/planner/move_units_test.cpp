// Moving units against every cut of small models.
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/moves/move.h"
#include "test/unit/planner/each_cut.h"
#include "test/unit/planner/first_split.h"
#include "test/unit/planner/problem_builder.h"
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace cleave::planner {
namespace {

TEST(CutImprovement, NoUnitIsBetterElsewhere) {
  std::mt19937 random(5);
  const std::vector<std::string> kinds = {"1f1b", "interleaved:2", "zb-v", "zb-h1"};
  int improved = 0, fastest = 0, rounds = 0;
  for (int round = 0; round < 32; ++round) {
    const Problem problem = testing::gpt(
        {16, int64_t(32) << random() % 3, int64_t(64) << random() % 3, 4, int64_t(6 + random() % 3), 4096});
    Cluster cluster = *parseCluster("a100-80g:1x4");
    Setting setting;
    setting.pp = 4;
    setting.microbatches = 8;
    setting.schedule = kinds[size_t(round) % kinds.size()];
    const testing::FirstStages split(problem, cluster, setting);
    ASSERT_TRUE(split.isPossible());
    StageProblem stages = split.stages({}, {Recompute::None, Recompute::Selective, Recompute::Full});
    const int units = int(split.first.model.layout->units.size());
    std::vector<int> given(size_t(stages.stages()));
    std::iota(given.begin(), given.end(), 0); // all that are left in the last stage
    double most = 0;
    auto secondsOf = [&](const std::vector<int> &cut) {
      const PlanEvaluation evaluation = evaluatePlan(stages, planCut(stages, cut));
      most = std::max(most, evaluation.predicted.memory.total());
      return evaluation.fits ? evaluation.predicted.stepSeconds : infinity;
    };
    (void)secondsOf(given);
    if (round % 8 >= 4) { // also where memory is short
      stages.memoryLimit = 0.8 * most;
      const std::optional<StagePlan> plan = planStages(stages);
      if (!plan || !plan->fits) continue;
      given = plan->firstUnits;
    }
    const std::vector<int> cut = improvedCut(stages, given, 100000, {});
    const double seconds = secondsOf(cut);
    if (seconds == infinity) continue;
    EXPECT_LE(seconds, secondsOf(given));
    improved += seconds < 0.9 * secondsOf(given);
    double best = infinity;
    auto sizesOf = [&](const std::vector<int> &of) {
      std::vector<int> sizes;
      for (size_t s = 0; s < of.size(); ++s) sizes.push_back((s + 1 < of.size() ? of[s + 1] : units) - of[s]);
      return sizes;
    };
    const std::vector<int> sizes = sizesOf(cut);
    testing::eachCut(units, stages.stages(), [&](const std::vector<int> &other) {
      const double of = secondsOf(other);
      best = std::min(best, of);
      int moved = 0;
      const std::vector<int> others = sizesOf(other);
      for (size_t s = 0; s < sizes.size(); ++s) moved += std::abs(sizes[s] - others[s]);
      if (moved == 2) EXPECT_GE(of, seconds * (1 - 1e-6)) << setting.schedule; // one unit elsewhere
    });
    fastest += seconds <= best * 1.001;
    ++rounds;
    EXPECT_EQ(improvedCut(stages, cut, 100000, {}), cut);
    EXPECT_EQ(improvedCut(stages, given, 0, {}), given); // no price, no change
  }
  EXPECT_GE(rounds, 20);
  EXPECT_GE(improved, 10);
  EXPECT_GE(fastest, 20);
}

} // namespace
} // namespace cleave::planner
