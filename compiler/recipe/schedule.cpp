#include "compiler/recipe/schedule.h"

namespace cleave::recipe {

plan::Schedule planned(const Schedule &schedule) {
  plan::Schedule to;
  to.set_kind(toString(schedule.kind));
  to.set_peak(schedule.peak);
  to.set_min(schedule.min);
  if (schedule.start) to.set_start(*schedule.start);
  to.set_warmup_steps(schedule.warmupSteps);
  to.set_total_steps(schedule.totalSteps);
  for (int64_t milestone : schedule.milestones) to.add_milestones(milestone);
  to.set_gamma(schedule.gamma);
  to.set_power(schedule.power);
  to.set_period(schedule.period);
  to.set_period_factor(schedule.periodFactor);
  to.set_decay_steps(schedule.decaySteps);
  to.set_anneal(toString(schedule.anneal));
  to.set_warmup_share(schedule.warmupShare);
  return to;
}

} // namespace cleave::recipe
