// A simulated schedule for people and programs: a timetable for a terminal, a Gantt chart, JSON.
//
// Worked example, renderText of 1f1b with 2 ranks and 3 microbatches, all passes 1 ms:
//     1f1b: 2 ranks, 2 stages, 3 microbatches
//     a stage's forward 1 ms, input gradient 1 ms, weight gradient 1 ms, send 0 ms
//     step 12 ms, bubble rate 0.2500
//     peak live activations, by rank: 2 1
//
//     ms      |0                  |6.667
//     rank 0  F0 F1 ......B0--- F2 B1--- ...B2---
//     rank 1  ...F0 B0--- F1 B1--- F2 B2--- ......
#pragma once
#include "compiler/schedule/simulate.h"

namespace cleave::report {

struct RenderedSchedule {
  const planner::PipelineSchedule &schedule;
  const planner::Simulation &simulation;
  const planner::StageTimes &times; // of a stage, in ms
};

// Lines of at most `width` characters (at least 40 are used): time runs to the right, in blocks below each other.
std::string renderText(const RenderedSchedule &rendered, int width);

// One row a rank, a bar an action: its shade tells the chunk, its tooltip stage, microbatch and times. A whole
// document.
std::string renderSvg(const RenderedSchedule &rendered);

// {"schedule", "ranks", "stages", "microbatches", "rank_of_stage", "weight_versions", "times_ms": {f, b, w, comm} of a
// stage, "makespan_ms", "step_ms", "bubble_rate", "peak_live": [a rank each], "peak_held": [...], "rows":
// [[{"kind", "stage", "microbatch", "start_ms", "end_ms"}]]}; kind is F, B, I or W as in csv.h. step_ms is
// Simulation::longestRankTime, peak_held counts to the weight gradient.
std::string renderJson(const RenderedSchedule &rendered);

// The note that a reader of the schedule's numbers needs, or nothing: pipedream-2bw's differ from the unsplit model's.
std::string scheduleNote(const planner::PipelineSchedule &schedule);

} // namespace cleave::report
