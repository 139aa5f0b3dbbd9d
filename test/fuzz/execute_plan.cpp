#include "test/fuzz/execute_plan.h"
#include "runtime/check/verify/compare.h"
#include "runtime/engine/executor/dry_run.h"
#include "runtime/train/trainer.h"
#include <fmt/format.h>

namespace cleave::fuzz {
namespace {

std::string faultOf(const char *doing, const Status &status) {
  bool isClear = status || (!status.message().empty() && (status.exitStatus() == 1 || status.exitStatus() == 4));
  return isClear ? "" : fmt::format("{}: status {}, '{}'", doing, status.exitStatus(), status.message());
}

} // namespace

std::string executePlan(const plan::Plan &plan, bool trains) {
  Status ran = runtime::dryRun(plan);
  if (!ran) return faultOf("a dry run", ran);
  if (!trains) return faultOf("a comparison", runtime::comparePlan(plan, {.steps = 1}).status());
  auto trainer = runtime::Trainer::create(plan, {.steps = 1, .threads = 1});
  if (!trainer) return faultOf("a training", trainer.status());
  return faultOf("a step", (*trainer)->step().status());
}

} // namespace cleave::fuzz
