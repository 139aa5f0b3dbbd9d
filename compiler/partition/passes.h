// The passes that split a training step over a mesh, in the order in which they run (partition.h makes the pipeline).
#pragma once
#include "compiler/planner/problem/decision.h"
#include "compiler/schedule/schedule.h"
#include "compiler/policy.h"
#include "mlir/Pass/Pass.h"
#include <memory>
#include <optional>

namespace cleave::partition {

// Writes a decision on the module: mesh, factor splits of forward ops, home layouts of persistent tensors.
std::unique_ptr<mlir::Pass> createApplyDecision(planner::Decision decision);
// With the command-line option `file`: a text that Decision::parse reads.
std::unique_ptr<mlir::Pass> createApplyDecision();
// Computes the segments of the decision again in the backward pass. `exceptLast` (command-line option `except-last`):
// of a pipeline, @accumulate_last is what the last microbatch runs, with nothing computed again.
std::unique_ptr<mlir::Pass> createRecompute(bool exceptLast = false);
// Gives every op its split and every value its layout, with dist.reshard where they do not meet.
std::unique_ptr<mlir::Pass> createPropagateShardings();
// Global types become local ones, reshards become collectives.
std::unique_ptr<mlir::Pass> createMaterializeCollectives();
// Removes collectives whose work is undone or already done.
std::unique_ptr<mlir::Pass> createElideCollectives();
// Joins collectives of one kind and group; `bucketBytes` as the command-line option `bytes`.
std::unique_ptr<mlir::Pass> createBucketCollectives(int64_t bucketBytes = policy::bucketBytes);
// Gives every op of a pipeline its stage; runs before PropagateShardings. Option `ranks`: the rank of every stage.
std::unique_ptr<mlir::Pass> createAssignStages(std::vector<int> rankOfStage);
std::unique_ptr<mlir::Pass> createAssignStages();
// Makes a function for each stage and part of a pipeline, on local shapes. Options `ranks`, `halves`.
std::unique_ptr<mlir::Pass> createSplitStages(const planner::PipelineSchedule &table);
std::unique_ptr<mlir::Pass> createSplitStages();
// Says which function runs when: the rows of a pipeline's table, or accumulate and final. Command-line options
// `microbatches` and `schedule`.
std::unique_ptr<mlir::Pass> createBuildRoutines(int64_t microbatches, std::optional<planner::PipelineSchedule> table);
std::unique_ptr<mlir::Pass> createBuildRoutines();
// Fails when the partitioned module is not consistent.
std::unique_ptr<mlir::Pass> createVerifyPartition();

void registerPartitionPasses();

} // namespace cleave::partition
