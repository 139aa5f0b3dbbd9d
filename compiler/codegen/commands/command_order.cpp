#include "compiler/codegen/commands/command_order.h"
#include "compiler/codegen/commands/command_building.h"
#include "runtime/plan/routine.h"

namespace cleave::codegen {
using namespace mlir;

bool isUpdate(Operation *op) { return place::hasPhase(op, place::Phase::Update); }
bool isCollective(Operation *op) { return isa<plan::CollectiveCommandOp, plan::SendCommandOp>(op); }
bool isBetweenStages(Operation *op) {
  auto collective = dyn_cast<plan::CollectiveCommandOp>(op);
  return collective && llvm::any_of(collective.getAxes().getAsRange<StringAttr>(),
                                    [](StringAttr axis) { return dist::isPipelineAxis(axis.getValue()); });
}
int64_t streamFor(Operation *op, const dist::Mesh *mesh) {
  if (auto collective = dyn_cast<plan::CollectiveCommandOp>(op); collective && mesh) {
    dist::Axes axes;
    for (StringAttr axis : collective.getAxes().getAsRange<StringAttr>()) axes.push_back(axis.str());
    return runtime::laneAlong(*mesh, axes);
  }
  if (isCollective(op)) return runtime::communicationLane;
  if (isa<plan::ReceiveCommandOp>(op)) return runtime::receiveLane;
  return isFetch(op) ? runtime::fetchLane : isEvict(op) ? runtime::evictLane : runtime::computeLane;
}
bool isNoCommand(Operation *op) { return isa<plan::ViewOp, plan::ConstantCommandOp, onnx::ReadOp>(op); }

int64_t resultBytes(Operation *op) {
  int64_t bytes = 0;
  for (Value result : op->getResults()) bytes += bytesOf(result.getType());
  return bytes;
}

void moveAhead(CommandOrder &order, const Early &early, const llvm::DenseSet<Operation *> &moved) {
  SmallVector<Operation *> newOrder;
  llvm::DenseSet<Operation *> placed;
  auto place = [&](Operation *op, auto &&self) -> void {
    if (!placed.insert(op).second) return;
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp()) self(producer, self); // reads, views, own parts: shallow
    newOrder.push_back(op);
  };
  for (Operation *op : order) {
    if (!moved.contains(op)) place(op, place);
    auto ahead = early.find(op);
    if (ahead == early.end()) continue;
    for (Operation *command : ahead->second) place(command, place);
  }
  order = std::move(newOrder);
}

} // namespace cleave::codegen
