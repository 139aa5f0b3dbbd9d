#include "compiler/planner/search/driver/unexecuted.h"
#include "compiler/planner/search/driver/unequal_stages.h"
#include "compiler/planner/search/driver/uneven_batch.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::planner {
namespace {

// What cannot be executed is a row of the table up to so many times the chosen step.
constexpr double worthShowing = 1.25;

// "3.2 % faster, but cannot be executed yet"; also a note of it where it is faster.
std::string notExecuted(double seconds, const std::string &what, Decision &decision) {
  const double faster = 100 * (1 - seconds / decision.predicted.stepSeconds);
  if (faster <= 0.05) return fmt::format("{:.1f} % slower", std::max(0.0, -faster));
  decision.notes.push_back(
      fmt::format("left out, as it cannot be executed yet: {}, would be {:.1f} % faster", what, faster));
  return fmt::format("{:.1f} % faster, but cannot be executed yet", faster);
}

// A note; where all of the time is over another one says so.
std::string partIsOver(const std::string &what) {
  return fmt::format("the part of --search-seconds that is for {} was over before all were priced", what);
}

} // namespace

std::optional<Alternative> unequalStages(const SearchCase &asked, Decision &decision) {
  const auto &[problem, facts, cluster, given, time] = asked;
  const Constraints open;
  const bool isOpen = !given.dp && !given.tp && !given.fsdp && !given.cp && !given.ep && given.like.empty() &&
                      given.pp.value_or(0) != 1 && given.cuts.empty() && given.balance.empty() && given.pins.empty() &&
                      given.recomputeOf.empty() && !given.exceptLast && !given.offload && !given.schedule &&
                      given.sequenceSplit == open.sequenceSplit && facts.samplesMeetAt.empty();
  if (!isOpen || cluster.numDevices() < 3) return std::nullopt;
  const SearchOptions how = time.beside(2, "pricing stages of different device counts");
  SearchClock::Tell tell;
  if (how.progress) tell = [&](double elapsed) { how.progress({.seconds = elapsed}); };
  const SearchClock clock(how.seconds, tell);
  std::optional<UnequalPlan> plan =
      bestUnequalStages(problem, facts, cluster, given, worthShowing * decision.predicted.stepSeconds, clock);
  if (clock.isOver() && !time.isOver()) decision.notes.push_back(partIsOver("stages of different device counts"));
  if (!plan) return std::nullopt;
  Alternative row;
  row.name = "unequal stages";
  row.isExecutable = false;
  row.schedule = "1f1b";
  row.mesh.axes.push_back({"pp", int64_t(plan->stages.size())});
  row.zero = plan->zero;
  row.microbatches = plan->microbatches;
  row.recompute = plan->recompute;
  row.stepSeconds = plan->seconds;
  row.memoryBytes = plan->bytes;
  row.fits = plan->fits;
  const std::string what = plan->str();
  row.whyNot =
      what + "; " + notExecuted(plan->seconds, "pipeline stages of different device counts, " + what, decision);
  return row;
}

std::optional<Alternative> unevenBatch(const SearchCase &asked, Decision &decision) {
  const auto &[problem, facts, cluster, given, time] = asked;
  if (!given.like.empty() || !facts.samplesMeetAt.empty() || time.isOver()) return std::nullopt;
  const auto [plan, wasStopped] =
      bestUnevenBatch(problem, cluster, given, worthShowing * decision.predicted.stepSeconds,
                      time.beside(2, "pricing batches in uneven parts"));
  if (wasStopped && !time.isOver()) decision.notes.push_back(partIsOver("batches in uneven parts"));
  if (!plan) return std::nullopt;
  Alternative row;
  row.name = "uneven batch";
  row.isExecutable = false;
  row.schedule = plan->setting.schedule;
  row.mesh = plan->setting.mesh();
  row.zero = plan->setting.zero;
  row.microbatches = plan->setting.microbatches;
  row.recompute = plan->recompute;
  row.stepSeconds = plan->seconds;
  row.memoryBytes = plan->bytes;
  row.offload = plan->setting.offload;
  row.fits = true;
  const std::string what = plan->str(problem.batch);
  row.whyNot = what + "; " + notExecuted(plan->seconds, "a batch in uneven parts, " + what, decision);
  return row;
}

} // namespace cleave::planner
