#include "compiler/recipe/schema.h"
#include <cmath>
#include <cstdlib>

namespace cleave::recipe {
namespace {

bool isShare(MapReader &reader, const std::string &key) {
  return reader.has(key) && reader.node(key).IsScalar() && reader.node(key).Scalar().ends_with('%');
}

// A number of steps, or a share of the schedule's: "3%".
template <auto member> void readSteps(MapReader &reader, const Key<Schedule> &key, Schedule &schedule) {
  if (!isShare(reader, key.name)) return reader.read(key.name, schedule.*member, key.rule);
  const std::string text = reader.node(key.name).Scalar(), dotted = reader.dotted(key.name);
  char *end = nullptr;
  const double share = std::strtod(text.c_str(), &end) / 100;
  if (end != text.c_str() + text.size() - 1 || !Range{.min = 0, .max = 1}.has(share))
    reader.fail(key.name,
                fmt::format("'{}' must be a number of steps or a share from 0% to 100%, is '{}'", dotted, text));
  if (schedule.totalSteps == 0)
    reader.fail(key.name, fmt::format("'{}' is a share of 'optimizer.lr.total_steps', which is not given", dotted));
  schedule.*member = std::llround(share * static_cast<double>(schedule.totalSteps));
}

void startSchedule(MapReader &reader, Schedule &schedule) {
  reader.read("kind", schedule.kind);
  reader.checkUses(toString(schedule.kind), isShare(reader, "warmup_steps") ? "total_steps" : "");
  reader.read("total_steps", schedule.totalSteps, {.range = {.min = 1}}); // what the other steps may be shares of
}

void checkSchedule(MapReader &reader, Schedule &schedule) {
  if (schedule.kind == ScheduleKind::OneCycle) { // as PyTorch's OneCycleLR
    if (!schedule.start) schedule.start = schedule.peak / 25;
    if (!reader.has("min")) schedule.min = *schedule.start / 1e4;
  } else if (schedule.start && schedule.warmupSteps == 0) {
    reader.fail("start", "'optimizer.lr.start' is where the 'warmup_steps' begin, and there are none; leave it out");
  }
  auto needs = [&](const char *key, const char *what) {
    if (!reader.has(key))
      reader.fail(key, fmt::format("'optimizer.lr' of kind {} needs '{}', {}", toString(schedule.kind), key, what));
  };
  switch (schedule.kind) {
  case ScheduleKind::Constant:
    break;
  case ScheduleKind::Step:
    if (schedule.milestones.empty())
      reader.fail("milestones", "'optimizer.lr' of kind step needs 'milestones', a list of steps");
    break;
  case ScheduleKind::Exponential:
    needs("gamma", "what each step multiplies the rate by");
    break;
  case ScheduleKind::CosineRestarts:
    needs("period", "the steps until the first restart");
    break;
  case ScheduleKind::OneCycle:
    needs("total_steps", "the steps of the cycle");
    if (schedule.anneal == Anneal::Sqrt)
      reader.fail("anneal", "'optimizer.lr.anneal' of kind one_cycle is cosine or linear");
    break;
  case ScheduleKind::Wsd:
    needs("decay_steps", "the last steps, in which the rate falls");
    [[fallthrough]];
  case ScheduleKind::Linear:
  case ScheduleKind::Cosine:
  case ScheduleKind::Polynomial:
    if (schedule.totalSteps <= schedule.warmupSteps + schedule.decaySteps - (schedule.decaySteps > 0 ? 1 : 0))
      reader.fail("total_steps",
                  fmt::format("'optimizer.lr.total_steps' must be more than warmup_steps ({}){}, is {}",
                              schedule.warmupSteps,
                              schedule.decaySteps > 0
                                  ? fmt::format(" and at least that and decay_steps ({})", schedule.decaySteps)
                                  : "",
                              schedule.totalSteps));
  }
}

} // namespace

// clang-format off
template <> const Schema<Schedule> Schema<Schedule>::of = {.keys = {
    {"kind", at<&Schedule::kind>, "`constant`, `linear`, `cosine`, `step`, `exponential`, `polynomial`, `cosine_restarts`, `wsd`, `one_cycle`", "required", {.required = "'optimizer.lr' as a map needs a 'kind', such as constant, linear, cosine or wsd"}},
    {"peak", at<&Schedule::peak>, "the highest rate", "required", {.range = rateRange, .required = "'optimizer.lr' as a map needs 'peak', the highest rate"}},
    {"min", at<&Schedule::min>, "the lowest rate after the peak", "0; `one_cycle` start / 10,000", {.range = rateRange, .kinds = "linear cosine polynomial cosine_restarts wsd one_cycle"}},
    {"warmup_steps", at<&Schedule::warmupSteps>.readBy(readSteps<&Schedule::warmupSteps>), "steps in which the rate rises to `peak`, or a share of `total_steps`, such as `3%`", "0", {.range = {.min = 0}, .kinds = "constant linear cosine step exponential polynomial cosine_restarts wsd"}},
    {"start", at<&Schedule::start>, "the rate of the first step, where the warmup or the cycle begins", "peak / `warmup_steps`; `one_cycle` peak / 25", {.range = rateRange}},
    {"total_steps", at<&Schedule::totalSteps>, "the step at which the rate is `min`, and what `warmup_steps` may be a share of, whatever the kind", "required there", {.range = {.min = 1}, .kinds = "linear cosine polynomial wsd one_cycle", .isQuiet = true}},
    {"milestones", at<&Schedule::milestones>, "steps after which the rate falls", "required there", {.kinds = "step"}},
    {"gamma", at<&Schedule::gamma>, "what each milestone of `step`, or each step of `exponential`, multiplies the rate by", "0.1; required for `exponential`", {.range = {.above = 0}, .kinds = "step exponential"}},
    {"power", at<&Schedule::power>, "of the share of steps that are left", "1", {.range = {.above = 0}, .kinds = "polynomial"}},
    {"period", at<&Schedule::period>, "steps until the first restart", "required there", {.range = {.min = 1}, .kinds = "cosine_restarts"}},
    {"period_factor", at<&Schedule::periodFactor>, "how many times as long each period is as the one before", "1", {.range = {.min = 1}, .kinds = "cosine_restarts"}},
    {"decay_steps", at<&Schedule::decaySteps>.readBy(readSteps<&Schedule::decaySteps>), "the last steps, in which the rate falls to `min`, or a share of `total_steps`", "required there", {.range = {.min = 0}, .kinds = "wsd"}},
    {"anneal", at<&Schedule::anneal>, "how the rate falls: `cosine`, `linear`, `sqrt` (only `wsd`)", "`cosine`", {.kinds = "wsd one_cycle"}},
    {"warmup_share", at<&Schedule::warmupShare>, "the share of steps in which the rate rises", "0.3", {.range = {.above = 0, .below = 1}, .kinds = "one_cycle"}},
}, .start = startSchedule, .check = checkSchedule, .kind = [](const Schedule &lr) { return toString(lr.kind); }};
// clang-format on

} // namespace cleave::recipe
