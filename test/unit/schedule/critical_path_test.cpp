// Paths through a schedule's table against the simulator: at the times they were found at they are as long as it says,
// at other times never longer.
#include "compiler/schedule/critical_path.h"
#include "test/unit/schedule/schedules.h"
#include <random>

namespace cleave::planner {
namespace {

// Some stages' messages to both sides share a link, others' do not.
std::vector<StageTimes> randomTimes(std::mt19937 &random, int stages, bool sends) {
  std::uniform_real_distribution<double> pick(0.1, 2);
  std::vector<StageTimes> times;
  for (int s = 0; s < stages; ++s)
    times.push_back(
        {pick(random), pick(random), pick(random), sends ? pick(random) : 0, sends ? pick(random) : 0, 0, s % 3 == 1});
  return times;
}

std::vector<double> rankEnds(const Simulation &simulation) {
  std::vector<double> ends;
  for (const auto &row : simulation.actions) {
    ends.push_back(0);
    for (const ActionTime &action : row) ends.back() = std::max(ends.back(), action.end);
  }
  return ends;
}

TEST(CriticalPath, IsAsLongAsTheSimulationAndNeverLongerAtOtherTimes) {
  std::mt19937 random(1);
  for (const std::string &kind : everyKind)
    for (int ranks : {2, 4})
      for (auto [microbatches, sends] :
           {std::pair{int64_t(ranks), false}, {3 * ranks, false}, {ranks, true}, {3 * ranks, true}}) {
        const PipelineSchedule schedule = make(kind, ranks, microbatches);
        const std::vector<StageTimes> times = randomTimes(random, schedule.stages, sends);
        const std::vector<double> ends = rankEnds(simulate(schedule, times));
        const std::vector<SchedulePath> paths = criticalPaths(schedule, times);
        ASSERT_EQ(paths.size(), size_t(ranks));
        for (const SchedulePath &path : paths)
          EXPECT_NEAR(path.seconds(times), ends[size_t(path.rank)], 1e-9) << kind << " rank " << path.rank;
        for (int other = 0; other < 5; ++other) {
          const std::vector<StageTimes> changed = randomTimes(random, schedule.stages, sends || other % 2);
          const std::vector<double> changedEnds = rankEnds(simulate(schedule, changed));
          for (const SchedulePath &path : paths)
            EXPECT_LE(path.seconds(changed), changedEnds[size_t(path.rank)] * (1 + 1e-9)) << kind;
        }
      }
}

TEST(CriticalPath, SendsLieOnIt) {
  const PipelineSchedule schedule = make("1f1b", 2, 1);
  const std::vector<StageTimes> times = {{1, 2, 4, 8, 0}, {16, 32, 64, 0, 128}};
  const std::vector<SchedulePath> paths = criticalPaths(schedule, times);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_DOUBLE_EQ(paths[1].seconds(times), 1 + 8 + 16 + 32 + 64);
  EXPECT_DOUBLE_EQ(paths[0].seconds(times), 1 + 8 + 16 + 32 + 64 + 128 + 2 + 4);
}

// A rank's second message waits for its first one.
TEST(CriticalPath, MessagesWaitForTheLink) {
  const PipelineSchedule schedule = make("gpipe", 2, 2);
  // Two forward passes of a second, whose messages take eight.
  const std::vector<StageTimes> times = {{1, 1, 1, 8, 0}, {1, 1, 1, 0, 8}};
  const std::vector<SchedulePath> paths = criticalPaths(schedule, times);
  EXPECT_DOUBLE_EQ(paths[1].sendForward[0], 2);
  EXPECT_DOUBLE_EQ(paths[1].seconds(times), 1 + 8 + 8 + 1 + 4);
}

// The middle rank of 1F1B sends both ways, over one link or over two.
TEST(CriticalPath, MessagesToBothSidesShareALink) {
  const PipelineSchedule schedule = make("1f1b", 3, 4);
  std::vector<StageTimes> times = {{1, 1, 1, 1, 0}, {1, 1, 1, 6, 6}, {1, 1, 1, 0, 1}};
  auto ofFirst = [&] { return criticalPaths(schedule, times)[0].seconds(times); };
  const double shared = ofFirst();
  EXPECT_DOUBLE_EQ(shared, rankEnds(simulate(schedule, times))[0]);
  times[1].linkBackward = 1;
  EXPECT_LT(ofFirst(), shared - 5);
  EXPECT_DOUBLE_EQ(ofFirst(), rankEnds(simulate(schedule, times))[0]);
}

} // namespace
} // namespace cleave::planner
