// What a pipeline schedule costs: every rank runs its row in order, an action starts when its input has arrived, a send
// takes its time on the link from one rank to the other (one send at a time in each direction of a pair of ranks) while
// both ranks compute. Takes time proportional to the number of actions.
//
// Worked example, 1f1b with 2 ranks, 2 microbatches, all three passes 1, sends 0.5:
//     rank 0: F0 [0, 1]  F1 [1, 2]                       B0 [5, 7]  B1 [8, 10]
//     rank 1:       F0 [1.5, 2.5]  B0 [2.5, 4.5]  F1 [4.5, 5.5]  B1 [5.5, 7.5]
// makespan 10, of which a rank computes 6: bubble 0.4.
#pragma once
#include "compiler/planner/schedule/schedule.h"

namespace cleave::planner {

struct ActionTime {
  double start = 0, end = 0;
};

struct Simulation {
  std::vector<std::vector<ActionTime>> actions; // beside PipelineSchedule::rows
  double makespan = 0;                          // from 0 to the end of the last action
  double bubble =
      0; // of the rank that computes longest: 1 - its computing time / makespan (the zero-bubble papers' rate)
};

// `stages` has the times of each stage, or of one that stands for all. The schedule must be valid.
Simulation simulate(const PipelineSchedule &schedule, std::span<const StageTimes> stages);

} // namespace cleave::planner
