#include "compiler/schedule/csv.h"
#include "compiler/schedule/generators.h"
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::planner {
namespace {

enum class Placement { Straight, V }; // stage s on rank s mod P; or down the ranks and up again

struct Kind {
  std::string_view name;
  void (*fill)(PipelineSchedule &schedule, const StageTimes &times);
  int chunks = 1;           // stages a rank has; of "NAME:V" it is the default, 0 where V must be given
  bool takesChunks = false; // "NAME:V"
  Placement placement = Placement::Straight;
  bool splitsBackward = false;
  // How many microbatches its rows are made for; those that are asked for must be as many as the ranks AtLeastRanks.
  enum { Any, MultipleOfRanks, AtLeastTwiceRanks, AtLeastRanks } needs = Any;
  bool followsTimes = false;
  int weightVersions = 1;
};

constexpr Kind kinds[] = {
    {.name = "gpipe", .fill = fillBreadthFirst},
    {.name = "1f1b", .fill = fillOneForwardOneBackward},
    {.name = "interleaved", .fill = fillInterleaved, .chunks = 0, .takesChunks = true, .needs = Kind::MultipleOfRanks},
    {.name = "looped-bfs", .fill = fillBreadthFirst, .chunks = 2, .takesChunks = true},
    {.name = "zb-h1", .fill = fillZeroBubbleH1, .splitsBackward = true},
    {.name = "zb-h2", .fill = fillZeroBubbleH2, .splitsBackward = true},
    {.name = "zb-1p", .fill = fillZeroBubble1P, .splitsBackward = true, .followsTimes = true},
    {.name = "zb-2p", .fill = fillZeroBubble2P, .splitsBackward = true, .followsTimes = true},
    {.name = "zb-v",
     .fill = fillZeroBubbleV,
     .chunks = 2,
     .placement = Placement::V,
     .splitsBackward = true,
     .needs = Kind::AtLeastTwiceRanks},
    {.name = "dualpipev",
     .fill = fillDualPipeV,
     .chunks = 2,
     .placement = Placement::V,
     .splitsBackward = true,
     .needs = Kind::AtLeastTwiceRanks},
    {.name = "pipedream-2bw", .fill = fillOneForwardOneBackward, .needs = Kind::AtLeastRanks, .weightVersions = 2},
};

constexpr int64_t mostActions = int64_t(1) << 28; // a table of 4 GiB

Status usage(std::string message) { return {ErrorKind::Usage, std::move(message)}; }

bool isFile(const std::string &kind) { return kind.ends_with(".csv"); }

struct Asked {
  const Kind *kind;
  int chunks;
};

Result<Asked> find(const std::string &text) {
  const size_t colon = text.find(':');
  const std::string_view name = std::string_view(text).substr(0, colon);
  const auto *kind = std::ranges::find(kinds, name, &Kind::name);
  if (kind == std::end(kinds))
    return usage(fmt::format("unknown schedule '{}'; there are {}", text, fmt::join(scheduleKinds(), ", ")));
  if (colon == std::string::npos) {
    if (kind->chunks == 0)
      return usage(fmt::format("schedule '{0}' needs the number of stages a rank has: {0}:2, for example", name));
    return Asked{kind, kind->chunks};
  }
  if (!kind->takesChunks) return usage(fmt::format("schedule '{}' takes no number: write '{}'", text, name));
  int chunks = 0;
  const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, chunks);
  if (error != std::errc() || rest != end || chunks < 1 || chunks > 1024)
    return usage(
        fmt::format("schedule '{}': '{}' is no number of stages a rank has (1 to 1024)", text, text.substr(colon + 1)));
  return Asked{kind, chunks};
}

std::vector<int> place(Placement placement, int ranks, int stages) {
  std::vector<int> rankOfStage(stages);
  for (int stage = 0; stage < stages; ++stage)
    rankOfStage[stage] = placement == Placement::V && stage >= ranks ? stages - 1 - stage : stage % ranks;
  return rankOfStage;
}

Status checkRanks(const std::string &kind, int ranks) {
  if (ranks >= 1 && ranks <= 1 << 16) return Status::ok();
  return usage(fmt::format("schedule '{}' of {} pipeline ranks: there must be 1 to 65536", kind, ranks));
}

// Without the microbatches from `microbatches` on. The rest of a valid schedule is valid: the microbatches depend
// on each other only through the order of the rows, and removing actions keeps the order of the others.
void drop(PipelineSchedule &schedule, int64_t microbatches) {
  schedule.microbatches = microbatches;
  for (auto &row : schedule.rows)
    std::erase_if(row, [&](const ScheduledAction &action) { return action.microbatch >= microbatches; });
}

} // namespace

std::vector<std::string> scheduleKinds() {
  std::vector<std::string> names;
  for (const Kind &kind : kinds)
    names.push_back(std::string(kind.name) + (!kind.takesChunks ? "" : kind.chunks == 0 ? ":V" : "[:V]"));
  names.emplace_back("FILE.csv");
  return names;
}

bool followsTimes(const std::string &kind) {
  const auto *known = std::ranges::find(kinds, kind, &Kind::name);
  return known != std::end(kinds) && known->followsTimes;
}

Result<ScheduleShape> scheduleShape(const std::string &kind, int ranks) {
  if (isFile(kind)) {
    Result<PipelineSchedule> schedule = makeSchedule(kind, ranks, 0, {});
    if (!schedule) return schedule.status();
    bool splits = false;
    for (const auto &row : schedule->rows)
      splits |= std::ranges::any_of(row, [](auto &action) { return action.kind == ActionKind::BackwardInput; });
    return ScheduleShape{schedule->ranks, schedule->stages, splits, schedule->rankOfStage};
  }
  Result<Asked> asked = find(kind);
  if (!asked) return asked.status();
  CLEAVE_RETURN_IF_ERROR(checkRanks(kind, ranks));
  const int stages = ranks * asked->chunks;
  return ScheduleShape{ranks, stages, asked->kind->splitsBackward, place(asked->kind->placement, ranks, stages),
                       asked->kind->weightVersions};
}

Result<PipelineSchedule> makeSchedule(const std::string &kind, int ranks, int64_t microbatches,
                                      const StageTimes &times) {
  if (isFile(kind)) return readScheduleFile(kind, ranks, microbatches);
  Result<Asked> asked = find(kind);
  if (!asked) return asked.status();
  CLEAVE_RETURN_IF_ERROR(checkRanks(kind, ranks));
  if (microbatches < 1)
    return usage(fmt::format("schedule '{}' of {} microbatches: there must be 1", kind, microbatches));
  // Its two versions are enough where a microbatch returns before the next step's gradients are due.
  if (asked->kind->needs == Kind::AtLeastRanks && microbatches < ranks)
    return usage(fmt::format("schedule '{}' needs as many microbatches as pipeline ranks: {} are fewer than {}; two "
                             "versions of the weights would not be enough",
                             kind, microbatches, ranks));

  int64_t made = microbatches;
  if (asked->kind->needs == Kind::MultipleOfRanks) made = (microbatches + ranks - 1) / ranks * ranks;
  if (asked->kind->needs == Kind::AtLeastTwiceRanks) made = std::max<int64_t>(microbatches, 2 * int64_t(ranks));
  if (made > mostActions / 3 / (int64_t(ranks) * asked->chunks))
    return usage(
        fmt::format("schedule '{}' of {} ranks and {} microbatches is too large a table", kind, ranks, microbatches));
  PipelineSchedule schedule;
  schedule.kind = kind;
  schedule.ranks = ranks;
  schedule.stages = ranks * asked->chunks;
  schedule.microbatches = made;
  schedule.rankOfStage = place(asked->kind->placement, ranks, schedule.stages);
  schedule.rows.resize(ranks);
  schedule.weightVersions = asked->kind->weightVersions;

  asked->kind->fill(schedule, times);
  if (made != microbatches) drop(schedule, microbatches);
  return schedule;
}

PipelineSchedule unrolled(const PipelineSchedule &schedule, int64_t steps) {
  PipelineSchedule whole = schedule;
  whole.microbatches *= steps;
  for (auto &row : whole.rows) row.clear();
  if (schedule.weightVersions > 1) {
    fillOneForwardOneBackward(whole, {});
    return whole;
  }
  for (int64_t step = 0; step < steps; ++step)
    for (int rank = 0; rank < schedule.ranks; ++rank)
      for (ScheduledAction action : schedule.rows[rank]) {
        action.microbatch += step * schedule.microbatches;
        whole.rows[rank].push_back(action);
      }
  return whole;
}

std::vector<StepActions> stepActions(const PipelineSchedule &schedule) {
  const int64_t count = schedule.microbatches;
  const PipelineSchedule two = unrolled(schedule, 2);
  std::vector<StepActions> ranks(schedule.ranks);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    StepActions &own = ranks[rank];
    const auto &row = two.rows[rank];
    const auto isNext = [&](const ScheduledAction &action) { return action.microbatch >= count; };
    // The first step's row ends with its last action; what of the second stands before it is ahead.
    const auto end = std::find_if_not(row.rbegin(), row.rend(), isNext).base();
    std::vector<ScheduledAction> early;
    for (auto action = row.begin(); action != end; ++action)
      if (isNext(*action)) early.push_back({action->kind, action->stage, action->microbatch - count});
    for (auto action = row.begin(); action != end; ++action) {
      if (!isNext(*action) && std::ranges::find(early, *action) != early.end()) {
        own.before.push_back(*action);
        continue;
      }
      own.ahead.push_back(isNext(*action));
      own.actions.push_back({action->kind, action->stage, action->microbatch % count});
    }
  }
  return ranks;
}

} // namespace cleave::planner
