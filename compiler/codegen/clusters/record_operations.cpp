#include "compiler/codegen/kernels/kernels.h"
#include "compiler/training/export_reference.h"
#include "dialects/plan/Plan.h"
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

using namespace mlir;
namespace cleave::codegen {
#define GEN_PASS_DEF_RECORDOPERATIONS
#include "compiler/codegen/Passes.h.inc"

namespace {

struct RecordOperations : impl::RecordOperationsBase<RecordOperations> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<plan::KernelOp>())
      if (failed(recordOperations(kernel.getBlock(), kernel.getSymName(), kernel))) return signalPassFailure();
  }
};

} // namespace

LogicalResult recordOperations(Block &block, StringRef name, Operation *on) {
  plan::Graph graph;
  if (failed(training::exportBlock(block, name, plan::scalarAttr.name(), graph))) return failure();
  for (plan::GraphNode &node : *graph.mutable_nodes()) node.clear_name(); // of the first launch: not the kernel's
  graph.mutable_work()->Resize(dist::elementWorks, 0);
  for (Operation &op : block)
    if (auto cost = dyn_cast<onnx::CostOpInterface>(op))
      graph.set_work(int(cost.getKind().work), graph.work(int(cost.getKind().work)) + cost.getFlops());
  std::string bytes; // the same on every process: maps in the order of their keys
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    if (!graph.SerializeToCodedStream(&out)) return on->emitOpError("its operations cannot be written");
  }
  plan::operationsAttr.set(on, bytes);
  return success();
}

} // namespace cleave::codegen
