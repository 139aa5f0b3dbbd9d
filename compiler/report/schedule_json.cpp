#include "compiler/report/rendered_schedule.h"
#include <nlohmann/json.hpp>

namespace cleave::report {

std::string renderJson(const RenderedSchedule &rendered) {
  const planner::PipelineSchedule &schedule = rendered.schedule;
  constexpr const char *letters[] = {"F", "B", "I", "W"}; // in the order of planner::ActionKind
  nlohmann::ordered_json json;
  json["schedule"] = schedule.kind;
  json["ranks"] = schedule.ranks;
  json["stages"] = schedule.stages;
  json["microbatches"] = schedule.microbatches;
  json["rank_of_stage"] = schedule.rankOfStage;
  json["weight_versions"] = schedule.weightVersions;
  if (const std::string note = scheduleNote(schedule); !note.empty()) json["note"] = note;
  json["times_ms"] = {{"f", rendered.times.forward},
                      {"b", rendered.times.backwardInput},
                      {"w", rendered.times.backwardWeight},
                      {"comm", rendered.times.sendForward}};
  json["makespan_ms"] = rendered.simulation.makespan;
  json["step_ms"] = rendered.simulation.longestRankTime;
  json["bubble_rate"] = rendered.simulation.bubble;
  json["peak_live"] = planner::peakLive(schedule);
  json["peak_held"] = planner::peakLive(schedule, planner::ActionKind::BackwardWeight);
  auto &rows = json["rows"] = nlohmann::ordered_json::array();
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    auto &row = rows.emplace_back(nlohmann::ordered_json::array());
    for (size_t cell = 0; cell < schedule.rows[rank].size(); ++cell) {
      const planner::ScheduledAction &action = schedule.rows[rank][cell];
      const planner::ActionTime &time = rendered.simulation.actions[rank][cell];
      row.push_back({{"kind", letters[static_cast<size_t>(action.kind)]},
                     {"stage", action.stage},
                     {"microbatch", action.microbatch},
                     {"start_ms", time.start},
                     {"end_ms", time.end}});
    }
  }
  return json.dump(1) + "\n";
}

} // namespace cleave::report
