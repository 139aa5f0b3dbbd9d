#include "compiler/planner/schedule_profile.h"
#include "compiler/planner/schedule/simulate.h"
#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

namespace cleave::planner {
namespace {

// From so many microbatches a rank on, more of them change neither what is kept (but for gpipe) nor the waiting.
constexpr int64_t steadyMicrobatches = 4;

std::optional<ScheduleProfile> measure(const std::string &kind, int64_t ranks, int64_t microbatches) {
  Result<PipelineSchedule> schedule = makeSchedule(kind, int(ranks), microbatches, {});
  if (!schedule) return std::nullopt;
  ScheduleProfile profile;
  profile.stages = schedule->stages;
  profile.chunks = std::max(1, int(schedule->stages / ranks));
  profile.rankOfStage = schedule->rankOfStage;
  profile.weightVersions = schedule->weightVersions;
  for (const auto &row : schedule->rows)
    for (const ScheduledAction &action : row)
      profile.splitsBackward = profile.splitsBackward || action.kind == ActionKind::BackwardInput;
  // A stage's slot is free when the weight gradient is done too.
  for (int64_t live : peakLive(*schedule, ActionKind::BackwardWeight)) {
    // Where steps run into each other microbatches lie in the same slots in each of them: `live` that overlap all the
    // time, like arcs on a circle of M, in ceil(M / floor(M / live)) slots.
    if (schedule->weightVersions > 1) {
      int64_t turns = microbatches / live;
      live = (microbatches + turns - 1) / turns;
    }
    profile.live.push_back(double(live) / double(profile.chunks));
  }
  StageTimes even;
  double one = (even.forward + even.backwardInput + even.backwardWeight) * double(profile.chunks);
  double waiting = simulate(*schedule, std::span(&even, 1)).makespan - one * double(microbatches);
  profile.bubble = std::max(0.0, waiting / one);
  return profile;
}

} // namespace

const ScheduleProfile *scheduleProfile(const std::string &kind, int64_t ranks, int64_t microbatches) {
  static std::mutex mutex;
  static std::map<std::tuple<std::string, int64_t, int64_t>, std::optional<ScheduleProfile>> known;
  int64_t steady = steadyMicrobatches * ranks;
  bool isSteady = microbatches > steady && kind != "gpipe" && kind.find('.') == std::string::npos;
  int64_t measured = isSteady ? steady + microbatches % ranks : microbatches;
  if (kind == "gpipe" && microbatches > steady) measured = steady;
  std::lock_guard lock(mutex);
  auto [found, isNew] = known.try_emplace({kind, ranks, kind == "gpipe" ? microbatches : measured});
  if (isNew) {
    found->second = measure(kind, ranks, measured);
    if (found->second && kind == "gpipe") found->second->live.assign(size_t(ranks), double(microbatches));
  }
  return found->second ? &*found->second : nullptr;
}

} // namespace cleave::planner
