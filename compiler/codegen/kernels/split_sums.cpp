// SplitSums: a sum of more tensors than a kernel has buffers becomes a tree of sums. So no kernel grows with the number
// of parameters, whose squares the gradients' norm adds up.
//
//   Sum of 1000 tensors  ->  38 Sums of 26 or 27 each;  2 Sums of 19 of these;  a Sum of the two
//
// The tree depends on the number of terms only, so the bits do not depend on threads or devices.
#include "compiler/codegen/kernels/cluster_graph.h"
#include "compiler/codegen/kernels/passes.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
namespace cleave::codegen {
namespace {

constexpr size_t mostTerms = maxBuffers - 1; // beside the result

// As few sums as there can be, of as equal numbers of terms as there can be.
SmallVector<Value> sumsOf(onnx::SumOp sum, ArrayRef<Value> terms) {
  OpBuilder builder(sum);
  const size_t count = llvm::divideCeil(terms.size(), mostTerms);
  SmallVector<Value> sums;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = terms.size() * i / count, end = terms.size() * (i + 1) / count;
    auto part = onnx::SumOp::create(builder, sum.getLoc(), sum.getType(), terms.slice(begin, end - begin));
    part->setDiscardableAttrs(llvm::to_vector(sum->getDiscardableAttrs()));
    sums.push_back(part);
  }
  return sums;
}

struct SplitSums : PassWrapper<SplitSums, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SplitSums)
  StringRef getArgument() const override { return "split-sums"; }
  StringRef getDescription() const override { return "Make trees of sums of more tensors than a kernel has buffers"; }
  void runOnOperation() override {
    getOperation().walk([](onnx::SumOp sum) {
      SmallVector<Value> terms(sum.getXs());
      while (terms.size() > mostTerms) terms = sumsOf(sum, terms);
      sum.getXsMutable().assign(terms);
    });
  }
};

} // namespace

std::unique_ptr<Pass> createSplitSumsPass() { return std::make_unique<SplitSums>(); }

} // namespace cleave::codegen
