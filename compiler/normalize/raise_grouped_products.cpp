#include "compiler/normalize/core_builder.h"
#include "compiler/normalize/normalize.h"
#include "dialects/onnx/formula.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <numeric>

using namespace mlir;
namespace cleave::normalize {
#define GEN_PASS_DEF_RAISEGROUPEDPRODUCTS
#include "compiler/normalize/Passes.h.inc"

namespace {

// The lookup that an operand of a product is, and the indices of its dimensions; null: it is none. Dimensions of one
// entry may lie elsewhere in the operand: at one sample a transpose is a reshape.
std::pair<onnx::GatherOp, Dims> lookupOf(Value operand, ArrayRef<int64_t> indices, ArrayRef<int64_t> result) {
  if (auto gather = operand.getDefiningOp<onnx::GatherOp>()) return {gather, Dims(indices)};
  auto reshape = operand.getDefiningOp<onnx::ReshapeOp>();
  auto gather = reshape ? reshape.getX().getDefiningOp<onnx::GatherOp>() : onnx::GatherOp();
  if (!gather || shapeOf(gather.getY()).size() != indices.size()) return {};
  Dims large, rows, others; // of more than one entry; of one
  Dims sizes, known;
  for (auto [index, size] : llvm::zip_equal(indices, shapeOf(operand))) {
    if (size != 1) large.push_back(index), sizes.push_back(size);
    if (size == 1) (llvm::is_contained(result, index) ? rows : others).push_back(index);
  }
  for (int64_t size : shapeOf(gather.getY()))
    if (size != 1) known.push_back(size);
  if (sizes != known) return {};
  const int64_t begin = gather.getAxis(), end = begin + static_cast<int64_t>(shapeOf(gather.getIndices()).size());
  Dims found;
  auto next = large.begin();
  for (auto [dim, size] : llvm::enumerate(shapeOf(gather.getY()))) {
    const bool isLookup = static_cast<int64_t>(dim) >= begin && static_cast<int64_t>(dim) < end;
    Dims &of = isLookup ? rows : others.empty() ? rows : others;
    if (size == 1 && of.empty()) return {};
    found.push_back(size == 1 ? of.front() : *next++);
    if (size == 1) of.erase(of.begin());
  }
  return {gather, found};
}

// A product of `gather`, whose indices are `looked`, with `other`, whose indices are `own`: a grouped product if each
// looked-up row is a matrix that is multiplied by rows of its own. Null otherwise.
Value raised(onnx::ContractOp product, onnx::GatherOp gather, ArrayRef<int64_t> looked, Value other,
             ArrayRef<int64_t> own) {
  ArrayRef<int64_t> result = product.getResultIndices(), table = shapeOf(gather.getTable());
  const int64_t axis = gather.getAxis(), lookups = static_cast<int64_t>(shapeOf(gather.getIndices()).size());
  if (!onnx::isFloatTensor(product.getY())) return {};
  if (gather.getBatchDims() > 0 || static_cast<int64_t>(gather.getPaddingRow()) >= 0) return {};
  int64_t group = 0;
  for (ArrayRef<int64_t> indices : {looked, own})
    for (int64_t index : indices) group = std::max(group, index + 1);
  Dims rows(looked.slice(axis, lookups)), matrix(looked.take_front(axis));
  matrix.push_back(group);
  matrix.append(looked.begin() + axis + lookups, looked.end());
  if (!llvm::all_of(rows, [&](int64_t index) { return llvm::is_contained(result, index); })) return {};
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
    if (!llvm::is_contained(matrix, index) && !llvm::is_contained(rows, index))
      rows.push_back(index), sizes.push_back(size);
  OpBuilder builder(product);
  onnx::Formula f(builder, product.getLoc());
  // A row that is multiplied by several looked-up matrices is repeated for each.
  Dims letters(own), repeated(shapeOf(other)), kept(letters.size());
  std::iota(kept.begin(), kept.end(), 0);
  for (auto [index, size] : llvm::zip(rows, shapeOf(gather.getIndices())))
    if (!llvm::is_contained(own, index)) letters.push_back(index), repeated.push_back(size);
  if (letters.size() > own.size()) other = f.make<onnx::BroadcastOp>(other, repeated, kept);
  Value groups = gather.getIndices();
  if (sizes.size() > known.size()) groups = f.make<onnx::BroadcastOp>(groups, sizes, known);
  return f.make<onnx::GroupedContractOp>(other, gather.getTable(), groups, letters, matrix, rows, result, group,
                                         table[axis],
                                         /*shard_axes=*/ArrayAttr(), /*global_groups=*/IntegerAttr());
}

struct RaiseGroupedProducts : impl::RaiseGroupedProductsBase<RaiseGroupedProducts> {
  void runOnOperation() override {
    getOperation().walk([](onnx::ContractOp product) {
      ArrayRef<int64_t> left = product.getLhsIndices(), right = product.getRhsIndices();
      Value y;
      if (auto [gather, looked] = lookupOf(product.getRhs(), right, product.getResultIndices()); gather)
        y = raised(product, gather, looked, product.getLhs(), left);
      auto [gather, looked] = lookupOf(product.getLhs(), left, product.getResultIndices());
      if (!y && gather) y = raised(product, gather, looked, product.getRhs(), right);
      if (!y) return;
      product.getY().replaceAllUsesWith(y);
      product.erase();
    });
    getOperation().walk([](onnx::ReshapeOp moved) {
      if (moved.use_empty()) moved.erase();
    });
    getOperation().walk([](onnx::GatherOp gather) {
      if (gather.use_empty()) gather.erase();
    });
  }
};

} // namespace
} // namespace cleave::normalize
