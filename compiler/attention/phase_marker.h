// Gives everything that a builder inserts its phase (`cleave.phase`), and takes the name that the planner knows a
// copied operation by.
#pragma once
#include "compiler/partition/layouts.h"
#include "mlir/IR/Builders.h"

namespace cleave::attention {

class PhaseMarker : public mlir::OpBuilder::Listener {
public:
  explicit PhaseMarker(mlir::StringAttr phase) : phase(phase) {}
  void notifyOperationInserted(mlir::Operation *op, mlir::OpBuilder::InsertPoint) override {
    op->setAttr(partition::phaseAttr, phase);
    op->removeAttr(partition::nodeAttr);
  }

private:
  mlir::StringAttr phase;
};

} // namespace cleave::attention
