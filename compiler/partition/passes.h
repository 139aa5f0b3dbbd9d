// The passes that split a training step over a mesh (compiler/driver/pass_list.h has their order).
#pragma once
#include "compiler/planner/problem/decision.h"
#include "compiler/schedule/schedule.h"
#include "compiler/tuning.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include <memory>
#include <optional>

namespace cleave::partition {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/partition/Passes.h.inc"

// With data that has no form as an option.
std::unique_ptr<mlir::Pass> createApplyDecision(planner::Decision decision, bool ofAnotherSize);
std::unique_ptr<mlir::Pass> createSplitStages(const planner::PipelineSchedule &table);
std::unique_ptr<mlir::Pass> createBuildRoutines(int64_t microbatches, std::optional<planner::PipelineSchedule> table);

} // namespace cleave::partition
