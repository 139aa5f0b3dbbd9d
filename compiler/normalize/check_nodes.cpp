#include "compiler/normalize/check_node.h"
#include "compiler/normalize/node.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_CHECKNODES
#include "compiler/normalize/Passes.h.inc"

namespace {

struct CheckNodes : impl::CheckNodesBase<CheckNodes> {
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
} // namespace cleave::normalize
