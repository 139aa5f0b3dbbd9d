#include "runtime/engine/executor/dry_run.h"
#include "runtime/engine/comm/null.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/routine.h"

namespace cleave::runtime {

Status dryRun(const plan::Plan &plan) {
  CLEAVE_ASSIGN_OR_RETURN(dist::Mesh mesh, meshOf(plan.mesh()));
  CLEAVE_ASSIGN_OR_RETURN(
      auto executor, Executor::create(plan, std::make_unique<NullFabric>(plan, mesh), {.null = true, .threads = 1}));
  for (const plan::Routine &routine : plan.programs(0).routines()) {
    size_t inputs = inputsOf(plan, routine.name()).size() * static_cast<size_t>(microbatchesOf(plan, routine.name()));
    std::vector<const std::byte *> none(inputs, nullptr);
    bool isAhead = stepsOverlap(plan) && routine.name() == "step";
    CLEAVE_ASSIGN_OR_RETURN(
        auto outputs, executor->run(routine.name(), none, 0, 0, isAhead ? none : std::vector<const std::byte *>{}));
  }
  return Status::ok();
}

} // namespace cleave::runtime
