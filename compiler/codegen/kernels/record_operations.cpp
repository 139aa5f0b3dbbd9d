// RecordOperations: a kernel's core ops, which become loops, are kept beside it as the plan carries them. What proves
// that a plan computes what its model does reads them there.
//
//   plan.kernel @k0_add(...) { %2 = onnx.Add %0, %1 ... }   ->   plan.kernel @k0_add(...) { ... } {plan.operations =
//   "..."}
#include "compiler/codegen/kernels/passes.h"
#include "compiler/training/ExportReference.h"
#include "dialects/plan/Plan.h"
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

using namespace mlir;
namespace cleave::codegen {
namespace {

struct RecordOperations : PassWrapper<RecordOperations, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RecordOperations)
  StringRef getArgument() const override { return "record-operations"; }
  StringRef getDescription() const override { return "Keep on each kernel what it computes"; }
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

std::unique_ptr<Pass> createRecordOperationsPass() { return std::make_unique<RecordOperations>(); }

} // namespace cleave::codegen
