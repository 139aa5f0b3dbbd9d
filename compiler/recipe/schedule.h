// The recipe's learning rate in a plan's form, which the runtime computes (runtime/plan/lr_schedule.h).
#pragma once
#include "compiler/recipe/recipe.h"
#include "plan/plan.pb.h"

namespace cleave::recipe {

plan::Schedule planned(const Schedule &schedule);

} // namespace cleave::recipe
