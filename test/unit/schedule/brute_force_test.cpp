#include "test/unit/schedule/brute_force.h"
#include "test/unit/schedule/schedules.h"
#include <map>
#include <random>

namespace cleave::planner {
namespace {

TEST(BruteForce, NoScheduleBeatsTheShortest) {
  for (auto [ranks, microbatches] : {std::pair(2, 3), std::pair(2, 4), std::pair(3, 3)})
    for (const StageTimes &times : {StageTimes{1, 1, 1}, StageTimes{3, 4, 2}, StageTimes{2, 1, 3}}) {
      const double whole = shortestMakespan(ranks, microbatches, times, false);
      const double split = shortestMakespan(ranks, microbatches, times, true);
      const std::string of = std::to_string(ranks) + " x " + std::to_string(microbatches);
      EXPECT_LE(split, whole) << of;
      for (const std::string &kind : {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p"}) {
        const bool splits = kind.starts_with("zb");
        const double makespan = simulated(make(kind, ranks, microbatches, times), times).makespan;
        EXPECT_GE(makespan, (splits ? split : whole) - 1e-9) << kind << " " << of;
        // Whole backwards: nothing is better than GPipe and 1F1B.
        if (!splits) EXPECT_NEAR(makespan, whole, 1e-9) << kind << " " << of;
        // Equal passes and memory enough: ZB-H2 is the best there is.
        if (kind == "zb-h2" && times.forward == 1 && microbatches >= 2 * ranks - 1)
          EXPECT_NEAR(makespan, split, 1e-9) << of;
      }
    }
}

// The times again, from the definition alone: every action starts when the one before it in its row has ended and its
// value has come through the link; repeated until nothing changes.
std::vector<std::vector<double>> endsByRelaxation(const PipelineSchedule &schedule,
                                                  std::span<const StageTimes> stages) {
  std::map<std::tuple<bool, int, int64_t>, double> produced; // gradient, stage, microbatch: when its value is there
  std::vector<std::vector<double>> ends(schedule.ranks);
  for (int rank = 0; rank < schedule.ranks; ++rank) ends[rank].assign(schedule.rows[rank].size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    std::map<std::pair<int, int>, std::vector<std::tuple<double, bool, int, int64_t, double>>> sends;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      double clock = 0;
      for (size_t cell = 0; cell < schedule.rows[rank].size(); ++cell) {
        const auto [kind, stage, m] = schedule.rows[rank][cell];
        const StageTimes &t = stages[stage];
        double ready = 0, takes = t.backwardWeight;
        if (kind == ActionKind::Forward) {
          ready = stage == 0 ? 0 : produced[{false, stage, m}], takes = t.forward;
        } else if (kind != ActionKind::BackwardWeight) {
          ready = stage + 1 == schedule.stages ? 0 : produced[{true, stage, m}];
          takes = t.backwardInput + (kind == ActionKind::Backward ? t.backwardWeight : 0);
        }
        clock = std::max(clock, ready) + takes;
        changed |= ends[rank][cell] != clock;
        ends[rank][cell] = clock;
        if (kind == ActionKind::BackwardWeight) continue;
        const bool gradient = kind != ActionKind::Forward;
        const int to = stage + (gradient ? -1 : 1);
        if (to < 0 || to >= schedule.stages) continue;
        const int other = schedule.rankOfStage[to];
        const double seconds = other == rank ? 0 : gradient ? t.sendBackward : t.sendForward;
        const int link = other == rank ? -1 : gradient ? t.linkBackward : t.linkForward;
        sends[{rank, link}].emplace_back(clock, gradient, to, m, seconds); // in the order of the row
      }
    }
    for (const auto &[out, list] : sends) {
      double free = 0;
      for (const auto &[at, gradient, stage, m, seconds] : list) {
        free = out.second < 0 ? at : std::max(free, at) + seconds;
        produced[{gradient, stage, m}] = free;
      }
    }
  }
  return ends;
}

TEST(BruteForce, SimulatorEqualsTheDefinition) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> pass(1, 9);
  for (const std::string &kind : everyKind)
    for (auto [ranks, microbatches] : {std::pair(2, 5), std::pair(3, 7), std::pair(4, 4)}) {
      const PipelineSchedule schedule = make(kind, ranks, microbatches);
      std::vector<StageTimes> stages(schedule.stages);
      for (StageTimes &t : stages)
        t = {double(pass(random)), double(pass(random)), double(pass(random)), double(pass(random)),
             double(pass(random)), pass(random) % 2,     pass(random) % 2};
      const Simulation simulation = simulate(schedule, stages);
      const auto ends = endsByRelaxation(schedule, stages);
      for (int rank = 0; rank < ranks; ++rank)
        for (size_t cell = 0; cell < ends[rank].size(); ++cell)
          ASSERT_EQ(simulation.actions[rank][cell].end, ends[rank][cell])
              << kind << " rank " << rank << " cell " << cell;
    }
}

} // namespace
} // namespace cleave::planner
