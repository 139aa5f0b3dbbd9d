#include "compiler/codegen/clusters/cluster_graph.h"
#include "compiler/codegen/passes.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
namespace cleave::codegen {
#define GEN_PASS_DEF_SPLITSUMS
#include "compiler/codegen/Passes.h.inc"

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

struct SplitSums : impl::SplitSumsBase<SplitSums> {
  void runOnOperation() override {
    getOperation().walk([](onnx::SumOp sum) {
      SmallVector<Value> terms(sum.getXs());
      while (terms.size() > mostTerms) terms = sumsOf(sum, terms);
      sum.getXsMutable().assign(terms);
    });
  }
};

} // namespace
} // namespace cleave::codegen
