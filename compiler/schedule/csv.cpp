#include "compiler/schedule/csv.h"
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <sstream>

namespace cleave::planner {
namespace {

constexpr std::string_view letters = "FBIW"; // in the order of ActionKind
constexpr int mostStages = 1 << 20;
constexpr int64_t mostMicrobatches = int64_t(1) << 24;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\"");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\"") - begin + 1);
}

template <typename Number> bool readNumber(std::string_view &text, Number &value) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest == text.data() || value < 0) return false;
  text.remove_prefix(rest - text.data());
  return true;
}

std::optional<ScheduledAction> readAction(std::string_view text) {
  ScheduledAction action;
  if (!readNumber(text, action.stage) || text.empty()) return std::nullopt;
  const size_t kind = letters.find(text.front());
  if (kind == std::string_view::npos) return std::nullopt;
  action.kind = static_cast<ActionKind>(kind);
  text.remove_prefix(1);
  if (!readNumber(text, action.microbatch) || !text.empty()) return std::nullopt;
  if (action.stage >= mostStages || action.microbatch >= mostMicrobatches) return std::nullopt;
  return action;
}

// The actions of a cell: one, or the two that DualPipeV overlaps, "(0F3;3B1)OVERLAP_F_B", which follow each other here.
std::optional<std::vector<ScheduledAction>> readCell(std::string_view text) {
  constexpr std::string_view overlap = ")OVERLAP_F_B";
  if (text.starts_with('(') && text.ends_with(overlap))
    text = text.substr(1, text.size() - 1 - overlap.size());
  else if (text.find(';') != std::string_view::npos)
    return std::nullopt;
  std::vector<ScheduledAction> actions;
  for (;;) {
    const size_t end = text.find(';');
    const std::optional<ScheduledAction> action = readAction(trimmed(text.substr(0, end)));
    if (!action) return std::nullopt;
    actions.push_back(*action);
    if (end == std::string_view::npos) return actions;
    text.remove_prefix(end + 1);
  }
}

} // namespace

std::string cellText(const ScheduledAction &action) {
  return fmt::format("{}{}{}", action.stage, letters[static_cast<size_t>(action.kind)], action.microbatch);
}

std::string writeCsv(const PipelineSchedule &schedule) {
  std::string text;
  for (const auto &row : schedule.rows) {
    for (size_t cell = 0; cell < row.size(); ++cell) {
      if (cell > 0) text += ',';
      text += cellText(row[cell]);
    }
    text += '\n';
  }
  return text;
}

Result<PipelineSchedule> readCsv(std::string_view text, const std::string &name) {
  PipelineSchedule schedule;
  schedule.kind = name;
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (trimmed(rest).empty()) continue;
    const int rank = schedule.ranks++;
    auto &row = schedule.rows.emplace_back();
    for (int cell = 1;; ++cell) {
      const size_t comma = rest.find(',');
      const std::string_view content = trimmed(rest.substr(0, comma));
      if (!content.empty()) {
        const std::optional<std::vector<ScheduledAction>> actions = readCell(content);
        if (!actions)
          return inputError(
              fmt::format("{}:{}: cell {}: '{}' is no action; write stage, F, B, I or W, microbatch (0F3), "
                          "or nothing for an idle rank; sends and receives follow by themselves",
                          name, line, cell, content));
        for (const ScheduledAction &action : *actions) {
          row.push_back(action);
          schedule.stages = std::max(schedule.stages, action.stage + 1);
          schedule.microbatches = std::max(schedule.microbatches, action.microbatch + 1);
          if (schedule.rankOfStage.size() < size_t(schedule.stages)) schedule.rankOfStage.resize(schedule.stages, -1);
          int &place = schedule.rankOfStage[action.stage];
          if (place < 0) place = rank;
          if (place != rank)
            return inputError(
                fmt::format("{}:{}: cell {}: '{}': stage {} is in the line of rank {} already; all actions "
                            "of a stage are in one line",
                            name, line, cell, content, action.stage, place));
        }
      }
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    if (row.empty())
      return inputError(fmt::format("{}:{}: no action in this line: every rank has a stage", name, line));
  }
  if (schedule.ranks == 0) return inputError(fmt::format("{}: no action in it", name));
  for (int stage = 0; stage < schedule.stages; ++stage)
    if (schedule.rankOfStage[stage] < 0) return inputError(fmt::format("{}: stage {} is in no line", name, stage));
  int64_t actions = 0;
  for (const auto &row : schedule.rows) actions += static_cast<int64_t>(row.size());
  if (actions < 2 * schedule.stages * schedule.microbatches) // before validate makes room for all of them
    return inputError(fmt::format("{}: {} actions for {} stages and {} microbatches, which need at least {}: some are "
                                  "missing",
                                  name, actions, schedule.stages, schedule.microbatches,
                                  2 * schedule.stages * schedule.microbatches));
  CLEAVE_RETURN_IF_ERROR(validate(schedule));
  return schedule;
}

Result<PipelineSchedule> readScheduleFile(const std::string &path, int ranks, int64_t microbatches) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (!file || !(content << file.rdbuf())) return inputError(fmt::format("{}: cannot be read", path));
  Result<PipelineSchedule> schedule = readCsv(content.str(), path);
  if (!schedule) return schedule;
  if (ranks > 0 && schedule->ranks != ranks)
    return inputError(fmt::format("{}: a schedule of {} pipeline ranks, not of {}", path, schedule->ranks, ranks));
  if (microbatches > 0 && schedule->microbatches != microbatches)
    return inputError(
        fmt::format("{}: a schedule of {} microbatches, not of {}", path, schedule->microbatches, microbatches));
  return schedule;
}

} // namespace cleave::planner
