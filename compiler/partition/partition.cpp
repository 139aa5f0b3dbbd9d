#include "compiler/partition/partition.h"
#include "compiler/partition/passes.h"
#include "mlir/Pass/PassRegistry.h"

namespace cleave::partition {

void buildPartitionPipeline(mlir::OpPassManager &manager, const dist::Mesh &mesh, const planner::Decision &decision,
                            const std::optional<planner::PipelineSchedule> &table,
                            llvm::function_ref<void(mlir::OpPassManager &)> onLocal,
                            llvm::function_ref<void(mlir::OpPassManager &)> beforeCut) {
  planner::Decision onMesh = decision;
  onMesh.mesh = mesh;
  manager.addPass(createApplyDecision(std::move(onMesh)));
  if (table) manager.addPass(createAssignStages(table->rankOfStage));
  manager.addPass(createRecompute(decision.exceptLast));
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

void registerPartitionPasses() {
  mlir::registerPass([] { return createApplyDecision(); });
  mlir::registerPass([] { return createRecompute(); });
  mlir::registerPass([] { return createPropagateShardings(); });
  mlir::registerPass([] { return createMaterializeCollectives(); });
  mlir::registerPass([] { return createElideCollectives(); });
  mlir::registerPass([] { return createBucketCollectives(); });
  mlir::registerPass([] { return createAssignStages(); });
  mlir::registerPass([] { return createSplitStages(); });
  mlir::registerPass([] { return createBuildRoutines(); });
  mlir::registerPass([] { return createVerifyPartition(); });
}

} // namespace cleave::partition
