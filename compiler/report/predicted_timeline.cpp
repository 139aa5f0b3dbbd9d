#include "compiler/report/predicted_timeline.h"
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/schedule/csv.h"
#include "compiler/schedule/simulate.h"
#include "runtime/base/printable.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace cleave::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t mostLines = 6;              // of collectives, that are listed one by one
constexpr int64_t memoryProcess = 1'000'000; // beyond the ranks

enum Lane : int { Passes, Collectives, Transfers };
constexpr const char *laneNames[] = {"passes", "collectives", "transfers"};

class ChromeTrace {
public:
  void process(int64_t id, const std::string &name) {
    events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", id}, {"tid", 0}, {"args", {{"name", name}}}});
  }
  void lane(int64_t process, Lane lane) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", process},
                      {"tid", int(lane)},
                      {"args", {{"name", laneNames[lane]}}}});
  }
  void slice(int64_t process, Lane lane, const std::string &name, const char *kind, double begin, double end,
             Json args) {
    constexpr double microseconds = 1e6;
    if (end <= begin) return;
    events.push_back({{"name", name},
                      {"cat", kind},
                      {"ph", "X"},
                      {"pid", process},
                      {"tid", int(lane)},
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

void addMemory(ChromeTrace &trace, const Report &report) {
  if (report.memoryOverTime.empty()) return;
  trace.process(memoryProcess, "predicted: memory of the fullest device");
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
}

// Those that go in a part of the step, with their bytes in it: of a pass the mean of all stages.
std::vector<std::pair<const planner::CollectiveTotal *, double>> collectivesIn(const Report &report,
                                                                               CollectivesOf part) {
  const double passes =
      double(report.microbatches) * double(report.stages.size()) / double(report.mesh.axisSize(dist::pipelineAxis));
  std::vector<std::pair<const planner::CollectiveTotal *, double>> found;
  for (const planner::CollectiveTotal &one : report.collectives) {
    if (one.op == "send") continue;
    const double once = one.bytes - one.forwardBytes - one.backwardBytes;
    const double bytes = part == CollectivesOf::Step      ? (one.hidden ? one.bytes : once)
                         : one.hidden                     ? 0
                         : part == CollectivesOf::Forward ? one.forwardBytes / passes
                                                          : one.backwardBytes / passes;
    if (bytes > 1e-9 * one.bytes) found.emplace_back(&one, bytes);
  }
  return found;
}

std::string nameOf(const planner::CollectiveTotal &one) {
  return fmt::format("{} over {}", one.op, fmt::join(one.axes, " and "));
}

// "all_gather over tp, reduce_scatter over tp"
std::string collectiveNames(const Report &report, CollectivesOf part) {
  std::vector<std::string> names;
  for (const auto &[one, bytes] : collectivesIn(report, part))
    if (std::ranges::find(names, nameOf(*one)) == names.end()) names.push_back(nameOf(*one));
  return fmt::format("{}", fmt::join(names, ", "));
}

} // namespace

std::optional<PredictedTimeline> predictedTimeline(const Report &report) {
  if (report.stages.empty()) return std::nullopt;
  const int64_t ranks = report.mesh.axisSize(dist::pipelineAxis);
  std::vector<planner::StageTimes> times;
  for (const Stage &stage : report.stages) times.push_back(stage.pass);
  auto schedule = planner::makeSchedule(ranks > 1 ? report.schedule : "1f1b", int(ranks), report.microbatches,
                                        planner::scheduleTimes(times));
  if (!schedule || schedule->stages != int(times.size())) return std::nullopt;
  const planner::Simulation simulation = planner::simulate(*schedule, times);
  PredictedTimeline timeline;
  timeline.ranks.resize(size_t(ranks));
  for (size_t r = 0; r < timeline.ranks.size(); ++r) {
    RankTimeline &rank = timeline.ranks[r];
    double last = 0, reduction = 0, update = 0, after = 0; // seconds
    for (size_t s = 0; s < report.stages.size(); ++s) {
      if (schedule->rankOfStage[s] != int(r)) continue;
      const Stage &stage = report.stages[s];
      rank.stages.push_back(int(s));
      reduction += stage.reductionSeconds;
      update += stage.updateSeconds;
      after = stage.afterPassesSeconds;
    }
    for (size_t cell = 0; cell < schedule->rows[r].size(); ++cell) {
      const planner::ScheduledAction &action = schedule->rows[r][cell];
      const planner::ActionTime &time = simulation.actions[r][cell];
      const Stage &stage = report.stages[size_t(action.stage)];
      TimedPass pass{action, time.start, time.end, passCollectives(report, stage, action.kind), time.sent, time.sent};
      if (time.sent > time.end) pass.sendStart = std::max(time.end, time.sent - passSend(stage, action.kind));
      rank.passes.push_back(pass);
      last = std::max(last, time.end);
    }
    rank.end = last + after;
    rank.updateStart = std::max(last, rank.end - update);
    rank.reductionStart = std::max(0.0, rank.updateStart - reduction);
    timeline.end = std::max(timeline.end, rank.end);
  }
  return timeline;
}

double passCollectives(const Report &report, const Stage &stage, planner::ActionKind kind) {
  const double forward = stage.forwardCommunicationSeconds / double(report.microbatches);
  if (kind == planner::ActionKind::Forward) return forward;
  if (kind == planner::ActionKind::BackwardWeight) return 0;
  return stage.communicationSeconds / double(report.microbatches) - forward;
}

double passSend(const Stage &stage, planner::ActionKind kind) {
  if (kind == planner::ActionKind::BackwardWeight) return 0;
  return kind == planner::ActionKind::Forward ? stage.pass.sendForward : stage.pass.sendBackward;
}

std::vector<std::string> collectiveLines(const Report &report, CollectivesOf part) {
  std::vector<std::string> lines;
  double others = 0; // bytes
  int64_t more = 0;
  for (const auto &[one, bytes] : collectivesIn(report, part)) {
    if (lines.size() == mostLines) {
      others += bytes;
      ++more;
      continue;
    }
    std::string line = fmt::format("{}: {} in {:.3g} ({}", nameOf(*one), formatBytes(bytes),
                                   double(one->count) * bytes / one->bytes, one->why);
    if (!one->tensors.empty()) line += fmt::format("; most of it {}", one->tensors[0].name);
    if (!one->tensors.empty() && one->tensors[0].alike > 1)
      line += fmt::format(" and {} alike", one->tensors[0].alike - 1);
    lines.push_back(runtime::printable(line + ")")); // names are of the model
  }
  if (more > 0) lines.push_back(fmt::format("others of {} kinds: {}", more, formatBytes(others)));
  return lines;
}

std::string renderTrace(const Report &report) {
  ChromeTrace trace;
  addMemory(trace, report);
  const std::optional<PredictedTimeline> timeline = predictedTimeline(report);
  if (!timeline) return trace.text();
  const std::string forward = collectiveNames(report, CollectivesOf::Forward);
  const std::string backward = collectiveNames(report, CollectivesOf::Backward);
  for (size_t r = 0; r < timeline->ranks.size(); ++r) {
    const RankTimeline &rank = timeline->ranks[r];
    const auto process = int64_t(r);
    trace.process(process,
                  timeline->ranks.size() > 1 ? fmt::format("predicted: pipeline rank {}", r) : "predicted: every rank");
    for (Lane lane : {Passes, Collectives, Transfers}) trace.lane(process, lane);
    for (const TimedPass &pass : rank.passes) {
      const planner::ScheduledAction &action = pass.action;
      const bool isForward = action.kind == planner::ActionKind::Forward;
      const Stage &stage = report.stages[size_t(action.stage)];
      Json args = {{"stage", action.stage}, {"microbatch", action.microbatch}};
      trace.slice(process, Passes, planner::cellText(action), passNames[size_t(action.kind)], pass.start, pass.end,
                  args);
      Json sent = args;
      sent["bytes"] = isForward ? stage.sentForwardBytes : stage.sentBackwardBytes;
      trace.slice(process, Transfers, isForward ? "activations" : "gradients", "send", pass.sendStart, pass.sendEnd,
                  std::move(sent));
      args["what"] = isForward ? forward : backward;
      trace.slice(process, Collectives, planner::cellText(action), "collectives", pass.end - pass.collectives, pass.end,
                  std::move(args));
    }
    trace.slice(process, Collectives, "once a step", "reduction", rank.reductionStart, rank.updateStart,
                {{"what", collectiveNames(report, CollectivesOf::Step)}});
    trace.slice(process, Passes, "update", "update", rank.updateStart, rank.end, Json::object());
  }
  return trace.text();
}

} // namespace cleave::report
