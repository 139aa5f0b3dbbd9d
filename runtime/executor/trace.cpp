#include "runtime/executor/trace.h"
#include "runtime/plan/plan_file.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::runtime {

TraceLane &Trace::lane(int64_t rank, int stream) {
  TraceLane &lane = lanes.emplace_back();
  lane.rank = rank, lane.stream = stream, lane.limit = recordsPerLane;
  lane.records.reserve(recordsPerLane);
  return lane;
}

Status Trace::write(const std::string &path, TraceName (*nameOf)(const void *item)) const {
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
  for (const TraceLane &lane : lanes) {
    const char *stream = lane.stream == 0 ? "compute" : "communication";
    emit({{"ph", "M"},
          {"name", "process_name"},
          {"pid", lane.rank},
          {"args", {{"name", fmt::format("rank {}", lane.rank)}}}});
    emit(
        {{"ph", "M"}, {"name", "thread_name"}, {"pid", lane.rank}, {"tid", lane.stream}, {"args", {{"name", stream}}}});
    for (const TraceLane::Record &record : lane.records) {
      TraceName shown = nameOf(record.item);
      emit({{"ph", "X"},
            {"name", shown.name},
            {"cat", shown.phase},
            {"pid", lane.rank},
            {"tid", lane.stream},
            {"ts", static_cast<double>(record.begin - start) / 1e3},
            {"dur", static_cast<double>(record.end - record.begin) / 1e3},
            {"args", {{"kind", shown.kind}, {"step", record.step}}}});
    }
  }
  text += "\n]}\n";
  return writeFileAtomically(text, path);
}

} // namespace cleave::runtime
