#include "compiler/partition/partition.h"
#include "compiler/partition/passes.h"

namespace cleave::partition {

void buildPartitionPipeline(mlir::OpPassManager &manager, const dist::Mesh &mesh, const planner::Decision &decision,
                            const std::optional<planner::PipelineSchedule> &table,
                            llvm::function_ref<void(mlir::OpPassManager &)> onLocal,
                            llvm::function_ref<void(mlir::OpPassManager &)> beforeCut) {
  planner::Decision onMesh = decision;
  onMesh.mesh = mesh;
  manager.addPass(createApplyDecision(std::move(onMesh)));
  if (table) manager.addPass(createAssignStages({{table->rankOfStage.begin(), table->rankOfStage.end()}}));
  manager.addPass(createRecompute({decision.exceptLast}));
  manager.addPass(createPropagateShardings());
  manager.addPass(createMaterializeCollectives());
  manager.addPass(createElideCollectives());
  if (onLocal) onLocal(manager);
  if (table && beforeCut) beforeCut(manager);
  if (table) manager.addPass(createSplitStages(*table));
  manager.addPass(createBucketCollectives());
  manager.addPass(createBuildRoutines(decision.microbatches, table));
  manager.addPass(createVerifyPartition());
}

} // namespace cleave::partition
