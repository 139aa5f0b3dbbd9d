#include "runtime/executor/trace.h"
#include "runtime/executor/rank.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/routine.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::runtime {

TraceLane &Trace::lane(int64_t rank, int number) {
  TraceLane &lane = lanes.emplace_back();
  lane.rank = rank, lane.lane = number, lane.limit = recordsPerLane;
  lane.records.reserve(recordsPerLane);
  return lane;
}

Status Trace::write(const std::string &path) const {
  int64_t start = INT64_MAX;
  for (const TraceLane &lane : lanes)
    if (!lane.records.empty()) start = std::min(start, lane.records.front().begin);
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const char *separator = "";
  auto emit = [&](const nlohmann::json &event) {
    text += separator;
    text += event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    separator = ",\n";
  };
  auto nameOf = [&](const char *what, int64_t rank, int lane, const std::string &name) {
    emit({{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", lane}, {"args", {{"name", name}}}});
  };
  for (const TraceLane &lane : lanes) {
    nameOf("process_name", lane.rank, lane.lane, fmt::format("rank {}", lane.rank));
    nameOf("thread_name", lane.rank, lane.lane, laneName(lane.lane, mesh));
    for (const TraceLane::Record &record : lane.records) {
      std::string action = actionName(*record.fragment, record.action->microbatch());
      nlohmann::json arguments{{"step", record.step}, {"microbatch", record.action->microbatch()}};
      if (record.command)
        arguments["kind"] = kindName(*record.command), arguments["action"] = action;
      else
        arguments["fragment"] = record.fragment->name(), arguments["slot"] = record.action->slot();
      emit({{"ph", "X"},
            {"name", record.command ? record.command->name() : action},
            {"cat", record.command ? record.command->phase() : "action"},
            {"pid", lane.rank},
            {"tid", lane.lane},
            {"ts", static_cast<double>(record.begin - start) / 1e3},
            {"dur", static_cast<double>(record.end - record.begin) / 1e3},
            {"args", arguments}});
    }
  }
  text += "\n]}\n";
  return writeFileAtomically(text, path);
}

} // namespace cleave::runtime
