// Batches that do not divide over the devices: what they cost is what their largest part costs.
#include "compiler/planner/search/driver/search.h"
#include "compiler/planner/search/driver/uneven_batch.h"
#include "test/unit/planner/problem_builder.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <limits>

namespace cleave::planner {
namespace {

TEST(UnevenBatch, NextBatchesDivideWhatTheGivenOneDoesNot) {
  EXPECT_EQ(nextBatches(10, 4), (std::vector<int64_t>{12}));
  EXPECT_EQ(nextBatches(30, 4), (std::vector<int64_t>{32}));
  EXPECT_EQ(nextBatches(16, 8), (std::vector<int64_t>{}));
  EXPECT_EQ(nextBatches(21, 8), (std::vector<int64_t>{22, 24}));
  EXPECT_EQ(nextBatches(5, 4), (std::vector<int64_t>{6})); // 8 are more than a quarter more
}

// Where devices exchange what they like for nothing, samples on other devices cost what the samples of the fullest one
// cost a device by itself.
TEST(UnevenBatch, TakesAsLongAsItsLargestPart) {
  Problem problem = testing::gpt({1, 64, 128, 8, 2, 512});
  problem.batch = 10;
  Result<Cluster> cluster = parseCluster("a100-80g:4"), one = parseCluster("a100-80g:1");
  cluster->node.bandwidth = 1e30;
  cluster->node.latency = 0;
  Constraints constraints;
  constraints.zero = 0;
  constraints.tp = 1;
  constraints.pp = 1;
  constraints.microbatches = 1;
  constraints.recompute = Recompute::None;
  SearchOptions plain{.alternatives = false};
  std::optional<UnevenBatch> uneven = bestUnevenBatch(problem, *cluster, constraints, 1e9, plain).best;
  ASSERT_TRUE(uneven);
  EXPECT_EQ(uneven->priced, 12);
  EXPECT_EQ(uneven->str(10), "10 samples over 4 devices, at most 3 on each");
  // What is no faster is not looked for.
  EXPECT_FALSE(bestUnevenBatch(problem, *cluster, constraints, uneven->seconds, plain).best);
  EXPECT_TRUE(bestUnevenBatch(problem, *cluster, constraints, uneven->seconds * (1 + 1e-9), plain).best);
  Problem part = problem;
  part.batch = 3;
  Result<Decision> alone = solve(part, *one, constraints, plain);
  ASSERT_TRUE(alone) << alone.status().message();
  // What a kernel reads is shared out over its operations as the whole batch makes it (fusion.cpp): 0.04 %.
  EXPECT_NEAR(uneven->seconds, alone->predicted.stepSeconds, 1e-3 * uneven->seconds);

  // All of it: an alternative that is not chosen, and a note, where nothing that divides is as fast.
  constraints = {};
  constraints.tp = 1;
  constraints.pp = 1;
  Result<Decision> decision = solve(problem, *cluster, constraints, {});
  ASSERT_TRUE(decision) << decision.status().message();
  auto row = std::ranges::find(decision->alternatives, "uneven batch", &Alternative::name);
  ASSERT_NE(row, decision->alternatives.end());
  EXPECT_LT(row->stepSeconds, decision->predicted.stepSeconds);
  EXPECT_NE(row->whyNot.find("cannot be executed yet"), std::string::npos) << row->whyNot;
  EXPECT_TRUE(std::ranges::any_of(decision->notes, [](const std::string &note) {
    return note.find("a batch in uneven parts, 10 samples over 4 devices") != std::string::npos;
  }));
}

// Where the time for it is over it says so, whatever was found.
TEST(UnevenBatch, SaysThatItWasStopped) {
  Problem problem = testing::gpt({1, 64, 256, 8, 4, 512});
  problem.batch = 10;
  Result<Cluster> cluster = parseCluster("a100-80g:4");
  const double worth = std::numeric_limits<double>::infinity();
  SearchOptions options{.alternatives = false};
  const UnevenSearch all = bestUnevenBatch(problem, *cluster, {}, worth, options);
  options.seconds = 1e6;
  const UnevenSearch enough = bestUnevenBatch(problem, *cluster, {}, worth, options);
  options.seconds = 1e-9;
  const UnevenSearch stopped = bestUnevenBatch(problem, *cluster, {}, worth, options);
  ASSERT_TRUE(all.best && enough.best && stopped.best); // one is tried in any case
  EXPECT_FALSE(all.wasStopped);
  EXPECT_FALSE(enough.wasStopped);
  EXPECT_TRUE(stopped.wasStopped);
  EXPECT_EQ(enough.best->seconds, all.best->seconds);
  EXPECT_GE(stopped.best->seconds, all.best->seconds);
}

// A limit leaves less to be priced and finds the same; settings over which the given samples divide are left out.
TEST(UnevenBatch, ALimitAndTheGivenSamplesLeaveLessToSearch) {
  Problem problem = testing::gpt({1, 64, 256, 8, 4, 512});
  problem.batch = 12;
  Result<Cluster> cluster = parseCluster("a100-80g:4");
  Constraints constraints;
  ProblemFacts facts = gatherFacts(problem, constraints);
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
  options.worth = std::numeric_limits<double>::infinity();
  options.undivided = 10;
  const Outcome uneven = searchSettings(problem, facts, *cluster, constraints, options);
  ASSERT_TRUE(uneven.best);
  for (const Solution &solution : uneven.byMesh) {
    const Setting &setting = solution.model->setting;
    EXPECT_NE(10 % (setting.batchWays() * setting.microbatches), 0) << setting.str();
  }
}

} // namespace
} // namespace cleave::planner
