#include "compiler/codegen/codegen.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/lower_contract.h"
#include "dialects/onnx/formula.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::codegen {
#define GEN_PASS_DEF_LAYEIGHTBITPRODUCTS
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

// Are m, n and k multiples of the alignment? Batch dimensions may have any size.
bool isAligned(onnx::ContractOp op) {
  int64_t m = 1, n = 1, k = 1;
  auto result = op.getResultIndices();
  auto shape = [](Value value) { return cast<RankedTensorType>(value.getType()).getShape(); };
  for (auto [index, size] : llvm::zip_equal(op.getLhsIndices(), shape(op.getLhs())))
    if (!llvm::is_contained(result, index))
      k *= size;
    else if (!llvm::is_contained(op.getRhsIndices(), index))
      m *= size;
  for (auto [index, size] : llvm::zip_equal(op.getRhsIndices(), shape(op.getRhs())))
    if (!llvm::is_contained(op.getLhsIndices(), index)) n *= size;
  return m % onnx::eightBitAlignment == 0 && n % onnx::eightBitAlignment == 0 && k % onnx::eightBitAlignment == 0;
}

// Does a step's warning count the products of this function? Evaluation, other microbatches and the next step's forward
// pass repeat them; so does recomputation.
bool isCounted(func::FuncOp function) {
  StringRef name = function.getName();
  return !name.starts_with("evaluate") && !name.starts_with("accumulate") && !name.ends_with(".last") &&
         !name.ends_with(".ahead");
}

Value castToBf16(OpBuilder &builder, Operation *origin, Value value) {
  auto cast = onnx::CastOp::create(builder, origin->getLoc(), value, builder.getBF16Type());
  place::copy(origin, cast);
  return cast.getY();
}

struct LayEightBitProducts : impl::LayEightBitProductsBase<LayEightBitProducts> {
  void runOnOperation() override {
    int64_t total = 0, widened = 0;
    onnx::ContractOp firstWidened;
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (auto contract : function.getOps<onnx::ContractOp>()) {
        if (!onnx::isEightBitFloat(cast<RankedTensorType>(contract.getLhs().getType()).getElementType())) continue;
        const bool countsForWarning = isCounted(function) && !place::isRecomputed(contract);
        if (countsForWarning) ++total;
        if (isAligned(contract)) {
          onnx::kMajorAttr.set(contract);
          continue;
        }
        OpBuilder builder(contract);
        contract.getLhsMutable().assign(castToBf16(builder, contract, contract.getLhs()));
        contract.getRhsMutable().assign(castToBf16(builder, contract, contract.getRhs()));
        if (countsForWarning && ++widened == 1) firstWidened = contract;
      }
    if (widened > 0)
      firstWidened.emitWarning() << widened << " of a step's " << total
                                 << " products on 8 bits have a size on a device that is no multiple "
                                 << "of " << onnx::eightBitAlignment
                                 << ", as cuBLASLt needs (this is the first): they multiply the "
                                 << "same numbers in bf16";
  }
};

} // namespace
} // namespace cleave::codegen
