// The time of a pipeline schedule: every rank runs its row in order, an action starts when its input has arrived, a
// send takes its time on a link of the rank that sends (one send at a time over each, in the order of its actions)
// while both ranks compute. A rank receives as much as it sends, and about when others send it that: its link in is not
// counted again. Takes time proportional to the number of actions.
//
// Worked example, 1f1b with 2 ranks, 2 microbatches, all three passes 1, sends 0.5:
//     rank 0: F0 [0, 1]  F1 [1, 2]                       B0 [5, 7]  B1 [8, 10]
//     rank 1:       F0 [1.5, 2.5]  B0 [2.5, 4.5]  F1 [4.5, 5.5]  B1 [5.5, 7.5]
// makespan 10, of which a rank computes 6: bubble 0.4.
#pragma once
#include "compiler/schedule/schedule.h"

namespace cleave::planner {

struct ActionTime {
  double start = 0, end = 0;
  double arrival = 0; // of what it needs
  double sent = 0;    // the receiver has what it makes; its end where nothing is sent
};

struct Simulation {
  std::vector<std::vector<ActionTime>> actions; // beside PipelineSchedule::rows
  double makespan = 0;                          // from 0 to the end of the last action
  // The longest that a rank takes from the start of its first action to the end of its last one: what a step costs
  // where each rank may start the next step when it is done with this one (the zero-bubble papers' cost; their
  // optimizer validates after the step instead of waiting for all ranks).
  double longestRankTime = 0;
  // 1 - m (f + b + w) / cost as in section 5.3 of the zero-bubble paper, with cost = longestRankTime and m (f + b + w) the
  // computing time of the rank that computes most. For a schedule with two weight versions: of a step in the steady
  // state, where cost = makespan = what a further step adds.
  double bubble = 0;
};

// `stages` has the times of each stage, or of one that stands for all. For a schedule that never ends, `actions` has
// those that can be done before its ranks wait for each other; otherwise it must be valid. `meets`, of one with two
// weight versions: all ranks wait for each other at a step's end, and begin the next one together, with what was done
// ahead (StepActions, whose order `actions` then has). With P ranks that are alike a step takes M (f + b + w) + (P - 1)
// (b + w).
Simulation simulate(const PipelineSchedule &schedule, std::span<const StageTimes> stages, bool meets = false);

// The makespan where ranks take turns on cores, `share` of a core for each, and the times are those of ranks that are
// all at work: while few are, others wait, each goes at the speed of one alone. As if all at work always slowed down
// alike, with the order of events of `simulation`. `unfilled`: part of that gain which is lost.
double makespanOnSharedCores(const Simulation &simulation, double share, double unfilled = 0);

} // namespace cleave::planner
