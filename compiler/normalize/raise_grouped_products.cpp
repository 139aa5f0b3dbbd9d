#include "compiler/normalize/core_builder.h"
#include "compiler/normalize/normalize.h"
#include "dialects/onnx/formula.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_RAISEGROUPEDPRODUCTS
#include "compiler/normalize/Passes.h.inc"

namespace {

// A product of `gather`, whose indices are `looked`, with `other`, whose indices are `own`: a grouped product if each
// looked-up row is a matrix that is multiplied by rows of its own. Null otherwise.
Value raised(onnx::ContractOp product, onnx::GatherOp gather, ArrayRef<int64_t> looked, Value other,
             ArrayRef<int64_t> own) {
  ArrayRef<int64_t> result = product.getResultIndices(), table = shapeOf(gather.getTable());
  const int64_t axis = gather.getAxis(), lookups = static_cast<int64_t>(shapeOf(gather.getIndices()).size());
  if (gather.getBatchDims() > 0 || static_cast<int64_t>(gather.getPaddingRow()) >= 0) return {};
  int64_t group = 0;
  for (ArrayRef<int64_t> indices : {looked, own})
    for (int64_t index : indices) group = std::max(group, index + 1);
  Dims rows(looked.slice(axis, lookups)), matrix(looked.take_front(axis));
  matrix.push_back(group);
  matrix.append(looked.begin() + axis + lookups, looked.end());
  auto isRow = [&](int64_t index) { return llvm::is_contained(own, index) && llvm::is_contained(result, index); };
  if (!llvm::all_of(rows, isRow)) return {};
  int64_t summed = 1, columns = 1;
  for (auto [index, size] : llvm::zip_equal(matrix, table)) {
    if (index == group) continue;
    const bool inOther = llvm::is_contained(own, index), inResult = llvm::is_contained(result, index);
    if (inOther && inResult) return {}; // a batch of tables
    (inOther ? summed : columns) *= size;
  }
  if (summed == 1 || columns == 1) return {}; // no matrix
  // Rows that the table does not tell apart are of the same group.
  Dims sizes(shapeOf(gather.getIndices())), known(sizes.size());
  for (auto [dim, at] : llvm::enumerate(known)) at = static_cast<int64_t>(dim);
  for (auto [index, size] : llvm::zip_equal(own, shapeOf(other)))
    if (!llvm::is_contained(looked, index)) rows.push_back(index), sizes.push_back(size);
  OpBuilder builder(product);
  onnx::Formula f(builder, product.getLoc());
  Value groups = gather.getIndices();
  if (sizes.size() > known.size()) groups = f.make<onnx::BroadcastOp>(groups, sizes, known);
  return f.make<onnx::GroupedContractOp>(other, gather.getTable(), groups, own, matrix, rows, result, group,
                                         table[axis],
                                         /*shard_axes=*/ArrayAttr(), /*global_groups=*/IntegerAttr());
}

struct RaiseGroupedProducts : impl::RaiseGroupedProductsBase<RaiseGroupedProducts> {
  void runOnOperation() override {
    getOperation().walk([](onnx::ContractOp product) {
      ArrayRef<int64_t> left = product.getLhsIndices(), right = product.getRhsIndices();
      Value y;
      if (auto gather = product.getRhs().getDefiningOp<onnx::GatherOp>())
        y = raised(product, gather, right, product.getLhs(), left);
      auto gather = product.getLhs().getDefiningOp<onnx::GatherOp>();
      if (!y && gather) y = raised(product, gather, left, product.getRhs(), right);
      if (!y) return;
      product.getY().replaceAllUsesWith(y);
      product.erase();
    });
    getOperation().walk([](onnx::GatherOp gather) {
      if (gather.use_empty()) gather.erase();
    });
  }
};

} // namespace
} // namespace cleave::normalize
