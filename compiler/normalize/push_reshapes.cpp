// PushReshapes
#include "compiler/normalize/core_builder.h"
#include "compiler/normalize/normalize.h"
using namespace mlir;
namespace cleave::normalize {
namespace {
struct PushReshapes : PassWrapper<PushReshapes, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PushReshapes)
  StringRef getArgument() const final { return "push-reshapes"; }
  StringRef getDescription() const final { return "split the operands of a product instead of its result"; }
  void runOnOperation() override {}
};
} // namespace
std::unique_ptr<Pass> createPushReshapesPass() { return std::make_unique<PushReshapes>(); }
} // namespace cleave::normalize
