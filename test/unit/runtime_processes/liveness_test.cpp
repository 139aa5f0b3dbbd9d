// Who keeps the others waiting, from what ranks say of themselves.
#include "runtime/engine/health/liveness.h"
#include "runtime/engine/health/stragglers.h"
#include "runtime/engine/health/watch.h"
#include <gmock/gmock.h>

namespace cleave::runtime {
namespace {

using State = RankReport::State;
RankReport in(State state, int64_t progress) {
  return {.state = state, .progress = progress, .host = "h", .where = "step 9, command 'x' (all_reduce)"};
}

// Ten times a second; ranks whose report is null say nothing.
std::optional<std::string> after(double seconds, Liveness &liveness, std::vector<std::optional<RankReport>> reports) {
  for (int turn = 0; turn < static_cast<int>(seconds * 10 + 0.5); ++turn) {
    liveness.pass(0.1);
    for (size_t rank = 0; rank < reports.size(); ++rank)
      if (reports[rank]) liveness.heard(static_cast<int>(rank), *reports[rank]);
    if (auto cause = liveness.judge()) return cause;
  }
  return std::nullopt;
}

TEST(Liveness, OneThatIsSilentIsNamedWithinTheTimeout) {
  Liveness liveness(3, 2.0, true);
  liveness.heard(1, in(State::Waiting, 5));
  EXPECT_FALSE(after(1.5, liveness, {in(State::Waiting, 7), std::nullopt, in(State::Waiting, 3)}));
  std::optional<std::string> cause = after(0.5, liveness, {in(State::Waiting, 8), std::nullopt, in(State::Waiting, 4)});
  ASSERT_TRUE(cause);
  EXPECT_THAT(*cause,
              testing::ContainsRegex("^rank 1 does not answer for 1.[89] s .host h, last heard of in step 9, command"));
}

TEST(Liveness, NobodyIsSilentBetweenSteps) {
  Liveness liveness(2, 2.0, true);
  liveness.heard(1, in(State::Outside, 5));
  EXPECT_FALSE(after(100, liveness, {in(State::Outside, 7), std::nullopt}));
}

TEST(Liveness, ProgressOfOneIsProgressOfAll) {
  Liveness liveness(2, 2.0, true);
  for (int64_t step = 0; step < 20; ++step)
    EXPECT_FALSE(after(1.0, liveness, {in(State::Waiting, 7), in(State::Busy, step)}));
}

TEST(Liveness, OneThatIsBusyWhileOthersWaitIsNamed) {
  Liveness liveness(3, 2.0, true);
  std::optional<std::string> cause =
      after(3, liveness, {in(State::Waiting, 1), in(State::Waiting, 1), in(State::Busy, 1)});
  ASSERT_TRUE(cause);
  EXPECT_THAT(*cause, testing::StartsWith("the others wait for rank 2 (host h, in step 9"));
  EXPECT_THAT(*cause, testing::Not(testing::HasSubstr("rank 1")));
}

TEST(Liveness, WhereAllWaitAllAreNamed) {
  Liveness liveness(2, 2.0, true);
  std::optional<std::string> cause = after(3, liveness, {in(State::Waiting, 1), in(State::Waiting, 1)});
  ASSERT_TRUE(cause);
  EXPECT_THAT(*cause, testing::AllOf(testing::HasSubstr("rank 0 (host h"), testing::HasSubstr("rank 1 (host h")));
}

TEST(Liveness, BeforeTheFirstStepOthersMayTakeTheirTime) {
  Liveness liveness(2, 2.0, true);
  EXPECT_FALSE(after(100, liveness, {in(State::Waiting, 1), RankReport{}}));
}

TEST(Liveness, WhoSeesOneRankOnlyJudgesItsSilenceOnly) {
  Liveness liveness(2, 2.0, false);
  EXPECT_FALSE(after(100, liveness, {in(State::Waiting, 1), in(State::Waiting, 1)}));
  EXPECT_TRUE(after(3, liveness, {std::nullopt, in(State::Waiting, 1)}));
}

TEST(Liveness, WhoHasLeftIsNotMissed) {
  Liveness liveness(2, 2.0, true);
  liveness.heard(1, in(State::Outside, 1));
  liveness.left(1);
  int64_t progress = 0;
  for (int turn = 0; turn < 50; ++turn) EXPECT_FALSE(after(0.1, liveness, {in(State::Busy, ++progress), std::nullopt}));
}

TEST(Stragglers, ASlowOneIsFoundOnceAWindow) {
  Stragglers stragglers({0, 0, 0, 0});
  for (int rank = 0; rank < 4; ++rank) stragglers.heard(rank, 1, rank == 3 ? 0.018 : 0.010);
  std::vector<Straggler> found = stragglers.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_DOUBLE_EQ(found[0].ratio, 1.8);
  EXPECT_TRUE(stragglers.found().empty());
  for (int rank = 0; rank < 3; ++rank) stragglers.heard(rank, 2, 0.010);
  EXPECT_TRUE(stragglers.found().empty()); // the fourth has not ended its window
  stragglers.heard(3, 2, 0.018);
  EXPECT_EQ(stragglers.found().size(), 1u);
}

TEST(Stragglers, StagesOfAPipelineAreNotCompared) {
  Stragglers stragglers({0, 1, 0, 1});
  for (int rank = 0; rank < 4; ++rank) stragglers.heard(rank, 1, rank % 2 ? 0.030 : 0.010);
  EXPECT_TRUE(stragglers.found().empty());
}

TEST(Stragglers, NoiseOfShortStepsIsNotTold) {
  Stragglers stragglers({0, 0});
  stragglers.heard(0, 1, 0.0001), stragglers.heard(1, 1, 0.0009);
  EXPECT_TRUE(stragglers.found().empty());
}

// For ranks that are threads of one process.
TEST(Watches, ARankInOneProcessThatComesNoFurtherEndsTheRun) {
  AbortFlag aborted;
  std::mutex lock;
  std::condition_variable ended;
  std::string cause;
  WatchOptions options{.timeoutSeconds = 0.5, .groups = {0, 0}, .aborted = &aborted, .local = {0, 1}};
  options.reports = [] { return std::vector{in(State::Waiting, 4), in(State::Busy, 4)}; };
  options.onEnd = [&](const std::string &why) {
    std::lock_guard guard(lock);
    cause = why;
    ended.notify_all();
  };
  Watch watch(nullptr, options);
  std::unique_lock guard(lock);
  ASSERT_TRUE(ended.wait_for(guard, std::chrono::seconds(30), [&] { return !cause.empty(); }));
  EXPECT_THAT(cause, testing::StartsWith("the others wait for rank 1 ("));
}

// Only a program that owns the process may end it.
TEST(Watches, AThreadThatDoesNotComeBackIsTold) {
  AbortFlag aborted;
  std::atomic<int> ended{0}, stuck{0};
  WatchOptions options{.timeoutSeconds = 0.5, .groups = {0, 0}, .aborted = &aborted, .local = {0, 1}};
  options.reports = [] { return std::vector{in(State::Waiting, 4), in(State::Busy, 4)}; };
  options.onEnd = [&](const std::string &) { ++ended, aborted.raise(); };
  options.onStuck = [&](const std::string &why) {
    EXPECT_THAT(why, testing::StartsWith("the others wait for rank 1 ("));
    ++stuck;
  };
  Watch watch(nullptr, options);
  for (int look = 0; look < 6000 && stuck == 0; ++look) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(stuck, 1);
}

} // namespace
} // namespace cleave::runtime
