// A plan verified (verify.h) and run without memory: a device of every program prepares all its commands on the null
// driver and goes through its routines once, with their events and the waits between streams. Finds what only shows
// when a plan is opened, on any machine, however large the model and the mesh are.
//
//   Status sound = dryRun(plan);    // "rank 3, command 'h.0.attn' (launch): ..."
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"

namespace cleave::runtime {

Status dryRun(const plan::Plan &plan);

} // namespace cleave::runtime
