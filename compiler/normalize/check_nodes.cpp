// CheckNodes: every onnx.node is what ONNX says that such a node may be, as far as that can be told before dimensions
// are bound. All faults are in one report. Operators that nothing supports are NormalizeNodes' to report.
#include "compiler/normalize/check_node.h"
#include "compiler/normalize/node.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

struct CheckNodes : PassWrapper<CheckNodes, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CheckNodes)
  StringRef getArgument() const final { return "check-nodes"; }
  StringRef getDescription() const final { return "check attributes and operands of every ONNX node"; }
  void runOnOperation() override {
    constexpr size_t mostReports = 8;
    size_t faults = 0;
    getOperation().walk([&](onnx::NodeOp node) {
      if (!isSupported(node.getDomain().str(), node.getOpType().str(), node.getVersion())) return;
      auto fault = faultOf(node, {[](Value) { return false; }, [](Value) { return Type(); }});
      if (fault && ++faults <= mostReports) errorAt(node) << *fault;
    });
    if (faults > mostReports) getOperation().emitError() << "... and " << faults - mostReports << " more nodes";
    if (faults) signalPassFailure();
  }
};

} // namespace

std::unique_ptr<Pass> createCheckNodesPass() { return std::make_unique<CheckNodes>(); }

} // namespace cleave::normalize
