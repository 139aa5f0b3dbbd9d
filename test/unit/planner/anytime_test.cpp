// Searches whose time is over at once: a plan comes out all the same, with a bound that holds; and a limit that is not
// reached changes nothing.
#include "compiler/planner/certify/stage_bound.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/pipeline/few_cuts.h"
#include "compiler/planner/search/driver/outer_search.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/planner/search/moves/move.h"
#include "compiler/planner/search/space/search_space.h"
#include "test/unit/planner/first_split.h"
#include "test/unit/planner/problem_builder.h"
#include <gtest/gtest.h>

namespace cleave::planner {
namespace {

constexpr double atOnce = 1e-9;

SearchClock overClock() {
  SearchClock clock(atOnce);
  while (!clock.isOver()) {
  }
  return clock;
}

struct Case {
  const char *cluster, *pp;
};

class Anytime : public ::testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    problem = testing::gpt({16, 64, 256, 8, 8, 512});
    cluster = *parseCluster(GetParam().cluster);
    constraints = *parseConstraints({.mesh = GetParam().pp}, cluster);
  }

  Outcome search(double seconds) {
    const ProblemFacts facts = gatherFacts(problem, cluster.device, constraints);
    SearchOptions options{.alternatives = false};
    options.seconds = seconds;
    return searchSettings(problem, facts, cluster, constraints, options);
  }

  Problem problem;
  Cluster cluster;
  Constraints constraints;
};

TEST_P(Anytime, APlanComesOutWithABoundThatHolds) {
  const Outcome all = search(0), first = search(atOnce), enough = search(1e6);
  ASSERT_TRUE(all.best && first.best && enough.best);
  EXPECT_TRUE(all.isComplete);
  EXPECT_FALSE(first.isComplete);
  EXPECT_LT(first.candidates, all.candidates / 2);
  EXPECT_TRUE(first.best->evaluation.fits);
  EXPECT_GE(first.best->seconds(), all.best->seconds());
  EXPECT_LE(first.bound, all.best->seconds());
  ASSERT_FALSE(first.notes.empty());
  EXPECT_NE(first.notes.back().find("the search was stopped"), std::string::npos) << first.notes.back();
  EXPECT_EQ(enough.best->seconds(), all.best->seconds());
  EXPECT_EQ(enough.best->choice, all.best->choice);
  EXPECT_EQ(enough.bound, all.bound);
  EXPECT_EQ(enough.candidates, all.candidates);
}

// Room for the leanest settings only: those that are tried first do not fit.
TEST_P(Anytime, WhatFitsIsFoundWhereLittleDoes) {
  const Outcome roomy = search(0);
  ASSERT_TRUE(roomy.best);
  double least = infinity;
  for (const Solution &solution : roomy.byMesh) least = std::min(least, solution.bytes());
  cluster.device.memoryBytes *= 0.8 * least / cluster.device.usableBytes();
  const Outcome all = search(0);
  const Outcome first = search(atOnce);
  ASSERT_TRUE(all.best && first.best);
  EXPECT_TRUE(first.best->evaluation.fits);
  EXPECT_LE(first.bound, all.best->seconds());
}

TEST_P(Anytime, ProgressIsToldUntilTheEnd) {
  problem = testing::gpt({240, 64, 256, 8, 24, 512}); // of many settings: longer than it takes until something is told
  std::vector<SearchProgress> told;
  SearchOptions options;
  options.progress = [&](const SearchProgress &progress) { told.push_back(progress); };
  Result<Decision> decision = solve(problem, cluster, constraints, options);
  ASSERT_TRUE(decision) << decision.status().message();
  EXPECT_FALSE(told.empty()) << "in " << decision->searchSeconds << " s";
  for (size_t i = 1; i < told.size(); ++i) EXPECT_GE(told[i].seconds, told[i - 1].seconds);
  for (const SearchProgress &progress : told) {
    if (progress.best == 0) continue;
    EXPECT_LE(progress.bound, decision->predicted.stepSeconds * (1 + 1e-9)) << progress.doing;
    EXPECT_GE(progress.best, decision->predicted.stepSeconds * (1 - 1e-9)) << progress.doing;
  }
}

INSTANTIATE_TEST_SUITE_P(Clusters, Anytime,
                         ::testing::Values(Case{"cpu:4", ""}, Case{"cpu:4", "pp=4"}, Case{"a100-80g:8", "pp=2"},
                                           Case{"v100-16g:8x4", ""}));

// With no time left: what was there before stays, and a bound is one.
TEST(SearchParts, EveryOneStops) {
  Problem problem = testing::gpt({16, 64, 256, 8, 8, 512});
  Result<Cluster> cluster = parseCluster("a100-80g:4");
  Setting setting;
  setting.pp = 4;
  setting.microbatches = 8;
  setting.schedule = "1f1b";
  const Constraints constraints;
  const ProblemFacts facts = gatherFacts(problem, cluster->device, constraints);
  const testing::FirstStages split(problem, *cluster, setting);
  ASSERT_TRUE(split.isPossible());
  StageProblem stages = split.stages(Recompute::None);
  const SearchClock over = overClock();
  const auto all = timeEachCut(stages, infinity), none = timeEachCut(stages, infinity, over);
  ASSERT_TRUE(all && none);
  EXPECT_GT(all->size(), 20u);
  EXPECT_TRUE(none->empty());
  EXPECT_LE(boundStages(stages, infinity, 60, {}, over).seconds, (*all)[0].seconds);
  StageRelaxation relaxation(stages, infinity);
  relaxation.tighten(60, {}, over);
  EXPECT_LE(relaxation.bound(), (*all)[0].seconds);
  StagePlan plan = planCut(stages, (*all)[0].firstUnits);
  PlanEvaluation evaluation = evaluatePlan(stages, plan);
  const std::vector<int> choice = split.first.choice;
  auto mixed = std::make_shared<SplitModel>(split.first.model);
  mixZero(stages, {0, 1, 2, 3}, choice, 1000, infinity, mixed, plan, evaluation, over);
  EXPECT_TRUE(mixed->lowers.empty());
}

// A limit leaves less to be priced and finds the same.
TEST(Anytime, ALimitLeavesLessToSearch) {
  Problem problem = testing::gpt({1, 64, 256, 8, 4, 512});
  problem.batch = 12;
  Result<Cluster> cluster = parseCluster("a100-80g:4");
  Constraints constraints;
  ProblemFacts facts = gatherFacts(problem, cluster->device, constraints);
  SearchOptions options{.alternatives = false};
  const Outcome all = searchSettings(problem, facts, *cluster, constraints, options);
  options.worth = all.best->seconds() * (1 + 1e-9);
  const Outcome limited = searchSettings(problem, facts, *cluster, constraints, options);
  ASSERT_TRUE(limited.best);
  EXPECT_EQ(limited.best->seconds(), all.best->seconds());
  options.worth = all.best->seconds() / 2;
  const Outcome none = searchSettings(problem, facts, *cluster, constraints, options);
  EXPECT_LT(none.candidates, all.candidates);
  EXPECT_LE(none.bound, options.worth);
  EXPECT_GE(none.bound, 0.995 * options.worth); // sharpened up to there (certifiedPart)
}

} // namespace
} // namespace cleave::planner
