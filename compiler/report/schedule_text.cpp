#include "compiler/report/rendered_schedule.h"
#include "compiler/schedule/csv.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::report {
namespace {

constexpr double mostColumns = 1 << 16; // of a whole timetable; shorter actions lose their labels beyond it

// "F3"; with the stage before it where a rank has several: "5F3".
std::string label(const planner::PipelineSchedule &schedule, const planner::ScheduledAction &action) {
  const std::string text = planner::cellText(action);
  return schedule.stages == schedule.ranks ? text.substr(text.find_first_of("FBIW")) : text;
}

// The shortest action is as wide as the longest label and a space.
double columnsPerMs(const RenderedSchedule &rendered) {
  size_t widest = 0;
  double shortest = rendered.simulation.makespan, last = 0;
  for (int rank = 0; rank < rendered.schedule.ranks; ++rank)
    for (size_t cell = 0; cell < rendered.schedule.rows[rank].size(); ++cell) {
      widest = std::max(widest, label(rendered.schedule, rendered.schedule.rows[rank][cell]).size());
      const planner::ActionTime &time = rendered.simulation.actions[rank][cell];
      if (time.end > time.start) shortest = std::min(shortest, time.end - time.start);
      last = std::max(last, time.end);
    }
  if (last <= 0 || shortest <= 0) return 1;
  return std::min(static_cast<double>(widest + 1) / shortest, mostColumns / last);
}

std::string timeline(const RenderedSchedule &rendered, int rank, double perMs, size_t columns) {
  std::string line(columns, '.');
  for (size_t cell = 0; cell < rendered.schedule.rows[rank].size(); ++cell) {
    const planner::ActionTime &time = rendered.simulation.actions[rank][cell];
    const size_t begin = std::min<size_t>(std::llround(time.start * perMs), columns);
    const size_t end = std::min<size_t>(std::llround(time.end * perMs), columns);
    if (end <= begin) continue;
    std::string text = label(rendered.schedule, rendered.schedule.rows[rank][cell]);
    text.resize(std::max(text.size(), end - begin - 1), '-');
    text.resize(end - begin - 1);
    line.replace(begin, end - begin, text + ' ');
  }
  return line;
}

std::string ruler(double from, double perMs, size_t columns) {
  std::string line;
  while (line.size() + 12 <= columns) {
    line += fmt::format("|{:.4g}", from + static_cast<double>(line.size()) / perMs);
    line.resize((line.size() + 19) / 20 * 20, ' ');
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

} // namespace

std::string scheduleNote(const planner::PipelineSchedule &schedule) {
  if (schedule.weightVersions == 1) return {};
  return "asynchronous: steps are not flushed, each rank keeps two versions of its weights, and gradients are taken at "
         "the "
         "weights before the last update; the numbers differ from the unsplit model's";
}

std::string renderText(const RenderedSchedule &rendered, int width) {
  const planner::PipelineSchedule &schedule = rendered.schedule;
  const planner::Simulation &simulation = rendered.simulation;
  std::string text = fmt::format("{}: {} ranks, {} stages, {} microbatches\n", schedule.kind, schedule.ranks,
                                 schedule.stages, schedule.microbatches);
  text += fmt::format(
      "a stage's forward {:.6g} ms, input gradient {:.6g} ms, weight gradient {:.6g} ms, send {:.6g} ms\n",
      rendered.times.forward, rendered.times.backwardInput, rendered.times.backwardWeight, rendered.times.sendForward);
  text += fmt::format("step {:.6g} ms, bubble rate {:.4f}\n", simulation.longestRankTime, simulation.bubble);
  text += fmt::format("peak live activations, by rank: {}\n", fmt::join(planner::peakLive(schedule), " "));
  const std::vector<int64_t> held = planner::peakLive(schedule, planner::ActionKind::BackwardWeight);
  if (held != planner::peakLive(schedule))
    text += fmt::format("to the weight gradient, by rank: {}\n", fmt::join(held, " "));
  if (const std::string note = scheduleNote(schedule); !note.empty()) text += note + "\n";

  const double perMs = columnsPerMs(rendered);
  double last = 0;
  for (const auto &row : simulation.actions)
    for (const planner::ActionTime &time : row) last = std::max(last, time.end);
  const size_t columns = std::llround(last * perMs);
  const std::string name = fmt::format("rank {}", schedule.ranks - 1);
  const size_t block = std::max(40, width) - name.size() - 2;
  std::vector<std::string> lines;
  for (int rank = 0; rank < schedule.ranks; ++rank) lines.push_back(timeline(rendered, rank, perMs, columns));
  for (size_t begin = 0; begin < columns; begin += block) {
    const size_t size = std::min(block, columns - begin);
    text += fmt::format("\n{:{}}  {}\n", "ms", name.size(), ruler(static_cast<double>(begin) / perMs, perMs, size));
    for (int rank = 0; rank < schedule.ranks; ++rank)
      text += fmt::format("{:{}}  {}\n", fmt::format("rank {}", rank), name.size(), lines[rank].substr(begin, size));
  }
  const bool split = std::ranges::any_of(schedule.rows, [](const auto &row) {
    return std::ranges::any_of(row,
                               [](const auto &action) { return action.kind == planner::ActionKind::BackwardInput; });
  });
  text += fmt::format("\n{}F forward, {}, then the microbatch; . idle\n",
                      schedule.stages == schedule.ranks ? "" : "stage, ",
                      split ? "B backward, I input gradient, W weight gradient" : "B backward");
  return text;
}

} // namespace cleave::report
