#include "compiler/report/predicted_timeline.h"
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/schedule/csv.h"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t memoryProcess = 1'000'000; // beyond the ranks

class ChromeTrace {
public:
  void process(int64_t id, const std::string &name) {
    events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", id}, {"tid", 0}, {"args", {{"name", name}}}});
  }
  void slice(int64_t process, const std::string &name, const char *kind, double begin, double end, Json args) {
    constexpr double microseconds = 1e6;
    events.push_back({{"name", name},
                      {"cat", kind},
                      {"ph", "X"},
                      {"pid", process},
                      {"tid", 0},
                      {"ts", microseconds * begin},
                      {"dur", microseconds * (end - begin)},
                      {"args", std::move(args)}});
  }
  void counter(int64_t process, const std::string &name, double at, Json args) {
    constexpr double microseconds = 1e6;
    events.push_back(
        {{"name", name}, {"ph", "C"}, {"pid", process}, {"ts", microseconds * at}, {"args", std::move(args)}});
  }
  std::string text() const { return Json({{"traceEvents", events}}).dump() + "\n"; }

private:
  Json events = Json::array();
};

} // namespace

std::optional<PredictedTimeline> predictedTimeline(const Report &report) {
  const int64_t ranks = report.mesh.axisSize("pp");
  if (ranks < 2 || report.stages.empty() || report.schedule == "none") return std::nullopt;
  std::vector<planner::StageTimes> times;
  for (const Stage &stage : report.stages) times.push_back(stage.pass);
  auto schedule =
      planner::makeSchedule(report.schedule, int(ranks), report.microbatches, planner::scheduleTimes(times));
  if (!schedule || schedule->stages != int(times.size())) return std::nullopt;
  planner::Simulation simulation = planner::simulate(*schedule, times);
  return PredictedTimeline{std::move(*schedule), std::move(simulation)};
}

std::string renderTrace(const Report &report) {
  ChromeTrace trace;
  if (!report.memoryOverTime.empty()) trace.process(memoryProcess, "predicted: memory of the fullest device");
  double begin = 0; // of the pass
  for (const planner::MemoryPoint &point : report.memoryOverTime) {
    trace.counter(memoryProcess, "memory in use", begin,
                  {{"parameters", point.memory.parameters},
                   {"optimizer", point.memory.optimizer},
                   {"gradients", point.memory.gradients},
                   {"workspace", point.memory.workspace},
                   {"activations", point.memory.activations}});
    begin = point.seconds;
  }
  if (const std::optional<PredictedTimeline> timeline = predictedTimeline(report)) {
    static constexpr const char *kinds[] = {"forward", "backward", "input gradient", "weight gradient"};
    for (int64_t rank = 0; rank < timeline->schedule.ranks; ++rank) {
      trace.process(rank, fmt::format("predicted: pipeline rank {}", rank));
      const auto &row = timeline->schedule.rows[size_t(rank)];
      for (size_t cell = 0; cell < row.size(); ++cell) {
        const planner::ActionTime &time = timeline->simulation.actions[size_t(rank)][cell];
        trace.slice(rank, planner::cellText(row[cell]), kinds[size_t(row[cell].kind)], time.start, time.end,
                    {{"stage", row[cell].stage}, {"microbatch", row[cell].microbatch}});
      }
    }
    return trace.text();
  }
  trace.process(0, "predicted: every rank");
  double at = 0;
  for (const Stage &stage : report.stages)
    for (auto [name, seconds] :
         {std::pair("forward", stage.forwardSeconds), std::pair("backward", stage.backwardSeconds),
          std::pair("reduction", stage.reductionSeconds), std::pair("update", stage.updateSeconds)}) {
      trace.slice(0, name, name, at, at + seconds, Json::object());
      at += seconds;
    }
  return trace.text();
}

} // namespace cleave::report
