#include "compiler/planner/pipeline/schedule_profile.h"
#include "compiler/schedule/simulate.h"
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
  const ScheduleShape *shape = knownShape(kind, ranks);
  if (!shape) return std::nullopt;
  ScheduleProfile profile;
  static_cast<ScheduleShape &>(profile) = *shape;
  profile.kind = kind;
  profile.microbatches = microbatches;
  profile.setLive(slotsOf(*schedule));
  return profile;
}

} // namespace

std::vector<double> slotsOf(const PipelineSchedule &schedule) {
  std::vector<double> slots;
  for (int64_t live : peakSlots(schedule)) {
    // Where steps run into each other microbatches lie in the same slots in each of them: `live` that overlap all the
    // time, like arcs on a circle of M, in ceil(M / floor(M / live)) slots.
    if (schedule.weightVersions > 1) {
      int64_t turns = schedule.microbatches / live;
      live = (schedule.microbatches + turns - 1) / turns;
    }
    slots.push_back(double(live));
  }
  return slots;
}

double ScheduleProfile::bubble() const {
  std::call_once(*simulated, [&] {
    const Result<PipelineSchedule> schedule = makeSchedule(kind, ranks, microbatches, {});
    StageTimes even;
    const double one = (even.forward + even.backwardInput + even.backwardWeight) * double(chunks());
    const double all = simulate(*schedule, std::span(&even, 1)).makespan - one * double(microbatches);
    waiting = std::max(0.0, all / one);
  });
  return waiting;
}

void ScheduleProfile::setLive(std::vector<double> slots) {
  live = std::move(slots);
  leastLive.assign(size_t(ranks), live.empty() ? 0 : *std::ranges::max_element(live));
  for (size_t s = 0; s < live.size(); ++s) {
    double &least = leastLive[size_t(rankOfStage[s])];
    least = std::min(least, live[s]);
  }
}

const ScheduleShape *knownShape(const std::string &kind, int64_t ranks) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int64_t>, Result<ScheduleShape>> known;
  std::lock_guard lock(mutex);
  auto found = known.find({kind, ranks});
  if (found == known.end()) found = known.emplace(std::pair(kind, ranks), scheduleShape(kind, int(ranks))).first;
  return found->second ? &*found->second : nullptr;
}

const ScheduleProfile *scheduleProfile(const std::string &kind, int64_t ranks, int64_t microbatches) {
  struct Known {
    std::once_flag isMeasured; // each table by itself: others need not wait for it
    std::optional<ScheduleProfile> profile;
  };
  static std::mutex mutex;
  static std::map<std::tuple<std::string, int64_t, int64_t>, Known> all;
  int64_t steady = steadyMicrobatches * ranks;
  const bool keepsAll = kind == "gpipe" || kind.starts_with("looped-bfs"); // all forwards come first
  bool isSteady = microbatches > steady && kind.find('.') == std::string::npos;
  int64_t measured = !isSteady ? microbatches : keepsAll ? steady : steady + microbatches % ranks;
  std::unique_lock lock(mutex);
  Known &known = all[{kind, ranks, keepsAll ? microbatches : measured}];
  lock.unlock();
  std::call_once(known.isMeasured, [&] {
    known.profile = measure(kind, ranks, measured);
    if (known.profile && keepsAll)
      known.profile->setLive(std::vector<double>(size_t(known.profile->stages), double(microbatches)));
  });
  return known.profile ? &*known.profile : nullptr;
}

} // namespace cleave::planner
