// The common part of the schedule tests: every kind, and making one that must succeed.
#pragma once
#include "compiler/schedule/simulate.h"
#include <gtest/gtest.h>

namespace cleave::planner {

inline const std::vector<std::string> everyKind = {"gpipe",      "1f1b",  "interleaved:2", "interleaved:3",
                                                   "looped-bfs", "zb-h1", "zb-h2",         "zb-1p",
                                                   "zb-2p",      "zb-v",  "dualpipev"};

inline PipelineSchedule make(const std::string &kind, int ranks, int64_t microbatches, const StageTimes &times = {}) {
  Result<PipelineSchedule> schedule = makeSchedule(kind, ranks, microbatches, times);
  EXPECT_TRUE(schedule.isOk()) << kind << ": " << schedule.status().message();
  return schedule ? *schedule : PipelineSchedule{};
}

inline Simulation simulated(const PipelineSchedule &schedule, const StageTimes &times = {}) {
  return simulate(schedule, std::span(&times, 1));
}

} // namespace cleave::planner
