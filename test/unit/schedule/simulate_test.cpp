#include "test/unit/processor_seconds.h"
#include "test/unit/schedule/schedules.h"
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

namespace cleave::planner {
namespace {

// Table 5 of "Zero Bubble Pipeline Parallelism": 8 stages, 24 microbatches, times of table 9 in ms.
struct PublishedBubble {
  std::string kind;
  int ranks;
  int64_t microbatches;
  double forward, backwardInput, backwardWeight, send, bubble;
};
const PublishedBubble publishedBubbles[] = {
    {"1f1b", 8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431},
    {"zb-h1", 8, 24, 18.522, 18.086, 9.337, 0.601, 0.1585},
    {"zb-h2", 8, 24, 18.522, 18.086, 9.337, 0.601, 0.1083},
    {"zb-2p", 8, 24, 18.522, 18.086, 9.337, 0.601, 0.0433},
};

void expectBubble(const PublishedBubble &row) {
  const StageTimes times{row.forward, row.backwardInput, row.backwardWeight, row.send, row.send};
  EXPECT_NEAR(simulated(make(row.kind, row.ranks, row.microbatches, times), times).bubble, row.bubble, 0.0001)
      << row.kind << " " << row.ranks << " x " << row.microbatches;
}

TEST(Simulate, BubblesOfTheZeroBubblePaper) {
  for (const PublishedBubble &row : publishedBubbles) expectBubble(row);
}

// More rows, where a file with them is there: source,schedule,stages,microbatches,f,b,w,comm,bubble_rate.
TEST(Simulate, BubblesOfAFile) {
  const char *path = std::getenv("CLEAVE_PIPELINE_BUBBLES");
  if (path == nullptr) GTEST_SKIP() << "CLEAVE_PIPELINE_BUBBLES names no file";
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line)) << path;
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream cells(line);
    PublishedBubble row;
    std::string source;
    cells >> source >> row.kind >> row.ranks >> row.microbatches >> row.forward >> row.backwardInput >>
        row.backwardWeight >> row.send >> row.bubble;
    ASSERT_TRUE(cells) << line;
    expectBubble(row);
  }
}

TEST(Simulate, WorkedExampleOfTheHeader) {
  const StageTimes times{1, 1, 1, 0.5, 0.5};
  const Simulation simulation = simulated(make("1f1b", 2, 2), times);
  const std::vector<std::vector<std::pair<double, double>>> expected = {
      {{0, 1}, {1, 2}, {5, 7}, {8, 10}}, {{1.5, 2.5}, {2.5, 4.5}, {4.5, 5.5}, {5.5, 7.5}}};
  for (int rank = 0; rank < 2; ++rank)
    for (size_t cell = 0; cell < 4; ++cell) {
      EXPECT_DOUBLE_EQ(simulation.actions[rank][cell].start, expected[rank][cell].first) << rank << " " << cell;
      EXPECT_DOUBLE_EQ(simulation.actions[rank][cell].end, expected[rank][cell].second) << rank << " " << cell;
    }
  EXPECT_DOUBLE_EQ(simulation.makespan, 10);
  EXPECT_DOUBLE_EQ(simulation.bubble, 0.4);
}

// Bubble time of the step, in the passes of a whole rank: (P - 1)(f + b + w) for GPipe and 1F1B, the V-th part of it
// for V interleaved chunks (Narayanan et al. 2021, sections 2.2.1 and 2.2.2); (P - 1)(f + b - w) and (P - 1)(f + b - 2
// w) for ZB-H1 and ZB-H2 (Qi et al. 2023, table 2, where b + f >= 2 w).
TEST(Simulate, ClosedForms) {
  for (int ranks : {1, 2, 4, 8})
    for (int64_t turns : {2, 3, 5}) {
      const int64_t microbatches = turns * ranks;
      auto idle = [&](const std::string &kind, int chunks, StageTimes times) {
        times.forward /= chunks, times.backwardInput /= chunks, times.backwardWeight /= chunks;
        const Simulation simulation = simulated(make(kind, ranks, microbatches, times), times);
        return simulation.longestRankTime -
               microbatches * chunks * (times.forward + times.backwardInput + times.backwardWeight);
      };
      for (const StageTimes &t : {StageTimes{1, 1, 1}, StageTimes{10, 9, 7}, StageTimes{4, 4, 2}}) {
        const double all = (ranks - 1) * (t.forward + t.backwardInput + t.backwardWeight);
        const std::string of = std::to_string(ranks) + " x " + std::to_string(microbatches);
        EXPECT_NEAR(idle("gpipe", 1, t), all, 1e-9) << of;
        EXPECT_NEAR(idle("1f1b", 1, t), all, 1e-9) << of;
        EXPECT_NEAR(idle("interleaved:2", 2, t), all / 2, 1e-9) << of;
        EXPECT_NEAR(idle("interleaved:4", 4, t), all / 4, 1e-9) << of;
        EXPECT_NEAR(idle("looped-bfs", 2, t), all / 2, 1e-9) << of;
        EXPECT_NEAR(idle("zb-h1", 1, t), (ranks - 1) * (t.forward + t.backwardInput - t.backwardWeight), 1e-9) << of;
        EXPECT_NEAR(idle("zb-h2", 1, t), (ranks - 1) * (t.forward + t.backwardInput - 2 * t.backwardWeight), 1e-9)
            << of;
      }
      EXPECT_NEAR(idle("zb-v", 2, {1, 1, 1}), 0, 1e-9) << ranks << " x " << microbatches;
      EXPECT_NEAR(idle("zb-2p", 1, {1, 1, 1}), 0, 1e-9) << ranks << " x " << microbatches;
    }
}

// A step of pipedream-2bw, in the steady state, is its work: the next step fills the bubble.
TEST(Simulate, AsynchronousStepsFillTheBubble) {
  const StageTimes times{1, 1, 1};
  const Simulation simulation = simulated(make("pipedream-2bw", 4, 8), times);
  EXPECT_NEAR(simulation.bubble, 0, 1e-9);
  EXPECT_NEAR(simulation.makespan, 8 * 3, 1e-9);
}

// Where all ranks wait for each other at each update, only the forwards of the bubble are filled: the last backward
// passes still go down to the first rank one after the other.
TEST(Simulate, AsynchronousStepsThatMeet) {
  for (int ranks : {1, 2, 4, 5})
    for (int64_t microbatches : {ranks, ranks + 1, 3 * ranks})
      for (const StageTimes &t : {StageTimes{1, 1, 1}, StageTimes{10, 9, 7}, StageTimes{4, 4, 2}}) {
        const double backward = t.backwardInput + t.backwardWeight;
        const PipelineSchedule schedule = make("pipedream-2bw", ranks, microbatches);
        EXPECT_NEAR(simulate(schedule, std::span(&t, 1), /*meets=*/true).makespan,
                    double(microbatches) * (t.forward + backward) + (ranks - 1) * backward, 1e-9)
            << ranks << " x " << microbatches;
      }
}

// A fill, steps and a drain, one after the other, are the rows of steps that run into each other.
TEST(Simulate, StepsPutTogetherAreUnrolled) {
  for (int ranks : {1, 2, 3, 4, 7})
    for (int64_t microbatches : {ranks, ranks + 1, 2 * ranks, 2 * ranks + 3}) {
      const PipelineSchedule schedule = make("pipedream-2bw", ranks, microbatches), whole = unrolled(schedule, 4);
      const std::vector<StepActions> rows = stepActions(schedule);
      for (int rank = 0; rank < ranks; ++rank) {
        const StepActions &row = rows[rank];
        std::vector<ScheduledAction> joined = row.before, ahead;
        for (int64_t step = 0; step < 4; ++step)
          for (size_t i = 0; i < row.actions.size(); ++i) {
            if (step == 3 && row.ahead[i]) continue;
            joined.push_back(row.actions[i]);
            joined.back().microbatch += (step + row.ahead[i]) * microbatches;
            if (step == 0 && row.ahead[i]) ahead.push_back(row.actions[i]);
          }
        EXPECT_EQ(joined, whole.rows[rank]) << ranks << " x " << microbatches << ", rank " << rank;
        EXPECT_EQ(ahead, row.before);
        EXPECT_EQ(row.before.size(), size_t(ranks - 1 - rank)); // P - 1 - r forwards
      }
    }
}

TEST(Simulate, LinksCarryOneSendAtATime) {
  // Sends of 4 on passes of 1: from the second microbatch on, rank 1 waits for the link.
  const StageTimes times{1, 1, 0, 4, 0};
  const Simulation simulation = simulated(make("gpipe", 2, 3), times);
  for (int64_t m = 0; m < 3; ++m) EXPECT_DOUBLE_EQ(simulation.actions[1][m].start, 1 + 4 * (m + 1));
}

// Messages of the middle one of three ranks to both sides go one after the other over one link, and side by side over
// two: 9 microbatches have 18 sends of 2.
TEST(Simulate, ARankSendsToBothSidesOverOneLink) {
  StageTimes times{1, 1, 0, 2, 2};
  auto makespan = [&] { return simulated(make("zb-h2", 3, 9), times).makespan; };
  const double shared = makespan();
  times.linkBackward = 1;
  EXPECT_GT(shared, 36);
  EXPECT_LT(makespan(), shared);
  times.sendBackward = 0; // nothing to share with
  const double alone = makespan();
  times.linkBackward = 0;
  EXPECT_DOUBLE_EQ(makespan(), alone);
}

TEST(Simulate, StagesOfTheirOwnTimes) {
  const std::vector<StageTimes> stages = {{1, 1, 1}, {5, 5, 5}};
  const Simulation simulation = simulate(make("1f1b", 2, 4), stages);
  EXPECT_DOUBLE_EQ(simulation.makespan, 1 + 4 * 15 + 2);
  EXPECT_DOUBLE_EQ(simulation.bubble, 1 - 60.0 / 63);
}

// As an operating system does it: slices of time, of those that can go on the one that waited longest.
double slicedMakespan(const PipelineSchedule &schedule, const StageTimes &times, int cores, double share) {
  constexpr double slice = 0.01;
  const auto count = size_t(schedule.ranks);
  std::vector<size_t> next(count, 0);
  std::vector<double> done(count, 0), last(count, -1);
  std::set<std::tuple<ActionKind, int, int64_t>> ended;
  auto canGo = [&](size_t rank) {
    if (next[rank] == schedule.rows[rank].size()) return false;
    const ScheduledAction &action = schedule.rows[rank][next[rank]];
    auto has = [&](ActionKind kind, int stage) { return ended.contains({kind, stage, action.microbatch}); };
    if (action.kind == ActionKind::Forward) return action.stage == 0 || has(ActionKind::Forward, action.stage - 1);
    if (action.kind == ActionKind::BackwardWeight) return has(ActionKind::BackwardInput, action.stage);
    return has(ActionKind::Forward, action.stage) &&
           (action.stage + 1 == schedule.stages || has(ActionKind::Backward, action.stage + 1) ||
            has(ActionKind::BackwardInput, action.stage + 1));
  };
  double now = 0;
  for (;; now += slice) {
    std::vector<size_t> ready;
    for (size_t rank = 0; rank < count; ++rank)
      if (canGo(rank)) ready.push_back(rank);
    if (ready.empty()) return now;
    std::ranges::stable_sort(ready, {}, [&](size_t rank) { return last[rank]; });
    ready.resize(std::min(ready.size(), size_t(cores)));
    for (size_t rank : ready) {
      const ScheduledAction &action = schedule.rows[rank][next[rank]];
      const double whole =
          share * (action.kind == ActionKind::Forward          ? times.forward
                   : action.kind == ActionKind::BackwardInput  ? times.backwardInput
                   : action.kind == ActionKind::BackwardWeight ? times.backwardWeight
                                                               : times.backwardInput + times.backwardWeight);
      last[rank] = now;
      if ((done[rank] += slice) < whole - 1e-9) continue;
      ended.insert({action.kind, action.stage, action.microbatch});
      done[rank] = 0;
      ++next[rank];
    }
  }
}

TEST(Simulate, RanksThatTakeTurnsOnCores) {
  const StageTimes times{2, 2.4, 1.6};
  for (const char *kind : {"gpipe", "1f1b", "zb-h1"})
    for (auto [ranks, microbatches, cores] : {std::array{2, 4, 1}, {4, 1, 2}, {4, 8, 2}, {4, 8, 3}, {6, 6, 2}}) {
      const PipelineSchedule schedule = make(kind, ranks, microbatches, times);
      const double share = double(cores) / ranks;
      const double predicted = makespanOnSharedCores(simulated(schedule, times), share);
      const double sliced = slicedMakespan(schedule, times, cores, share);
      EXPECT_NEAR(predicted, sliced, 0.15 * sliced) << kind << " " << ranks << " x " << microbatches << " on " << cores;
      EXPECT_LE(predicted, simulated(schedule, times).makespan);
    }
  // One core: nobody ever waits.
  EXPECT_NEAR(makespanOnSharedCores(simulated(make("1f1b", 4, 8), times), 0.25), 8 * 6.0, 1e-9);
}

TEST(Simulate, IsLinear) {
  auto secondsFor = [](int64_t microbatches) {
    const PipelineSchedule schedule = make("zb-h1", 64, microbatches);
    return cleave::test::processorSeconds([&] { EXPECT_GT(simulated(schedule).makespan, 0); });
  };
  // 64 times the actions. Quadratic would take 4,096 times as long; memory past the caches costs a few times more each.
  EXPECT_LT(secondsFor(32768), 640 * secondsFor(512));
}

} // namespace
} // namespace cleave::planner
