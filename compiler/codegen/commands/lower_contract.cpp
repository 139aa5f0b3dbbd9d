#include "compiler/codegen/commands/lower_contract.h"
#include "compiler/codegen/commands/command_building.h"
#include "compiler/codegen/commands/contract_layout.h"
#include "compiler/codegen/commands/strided_view.h"
#include "dialects/onnx/formula.h"

namespace cleave::codegen {
using namespace mlir;
namespace {

// An operand that the product reads, or the dense copy that replaces it.
struct Operand {
  StridedView view;
  llvm::ArrayRef<int64_t> indices;
};

IndexStrides stridesByIndex(size_t count, llvm::ArrayRef<int64_t> indices, llvm::ArrayRef<int64_t> strides) {
  IndexStrides byIndex(count);
  for (auto [index, stride] : llvm::zip(indices, strides)) byIndex[index] = stride;
  return byIndex;
}

// Copies the operand into a dense tensor with its indices in order. Updates only view.base and view.offset.
void copyToOrder(OpBuilder &builder, Operation *origin, Operand &operand, const IndexOrder &order) {
  llvm::SmallVector<int64_t, 6> sizes, strides;
  for (int64_t index : order) {
    size_t dim = llvm::find(operand.indices, index) - operand.indices.begin();
    sizes.push_back(operand.view.sizes[dim]);
    strides.push_back(operand.view.strides[dim]);
  }
  auto element = cast<RankedTensorType>(operand.view.base.getType()).getElementType();
  auto copy = plan::CopyCommandOp::create(
      builder, origin->getLoc(), RankedTensorType::get(sizes, element), operand.view.base,
      builder.getDenseI64ArrayAttr(sizes), builder.getDenseI64ArrayAttr(strides),
      builder.getDenseI64ArrayAttr(rowMajorStrides(sizes)), constantAffine(builder, operand.view.offset),
      builder.getI64IntegerAttr(0), FloatAttr());
  place::copy(origin, copy);
  operand.view.base = copy.getY();
  operand.view.offset = 0;
}

bool isParameter(Value value, const SymbolTable &symbols) {
  while (auto view = value.getDefiningOp<plan::ViewOp>()) value = view.getX();
  auto read = value.getDefiningOp<onnx::ReadOp>();
  if (!read) return false;
  auto param = symbols.lookup<onnx::ParamOp>(read.getParam());
  return param && param.getRole() == "parameter";
}

} // namespace

Value lowerContract(OpBuilder &builder, onnx::ContractOp op, const SymbolTable &symbols) {
  Operand lhs{viewOf(op.getLhs()), op.getLhsIndices()}, rhs{viewOf(op.getRhs()), op.getRhsIndices()};
  auto resultType = cast<RankedTensorType>(op.getY().getType());

  int64_t count = 0;
  for (llvm::ArrayRef<int64_t> indices : {op.getLhsIndices(), op.getRhsIndices(), op.getResultIndices()})
    for (int64_t index : indices) count = std::max(count, index + 1);
  ContractIndices contraction;
  contraction.sizes.assign(count, 1);
  for (auto [operand, value] : {std::pair{&lhs, op.getLhs()}, std::pair{&rhs, op.getRhs()}})
    for (auto [index, size] : llvm::zip(operand->indices, cast<RankedTensorType>(value.getType()).getShape()))
      contraction.sizes[index] = size;
  contraction.lhs = stridesByIndex(count, lhs.indices, lhs.view.strides);
  contraction.rhs = stridesByIndex(count, rhs.indices, rhs.view.strides);
  if (onnx::kMajorAttr.isOn(op)) {
    contraction.alignment = onnx::eightBitAlignment;
    contraction.copiesLhs = lhs.view.offset % onnx::eightBitAlignment != 0;
    contraction.copiesRhs = rhs.view.offset % onnx::eightBitAlignment != 0;
  }
  auto outStrides = rowMajorStrides(resultType.getShape());
  contraction.out = stridesByIndex(count, op.getResultIndices(), outStrides);

  ContractLayout layout = chooseContractLayout(contraction);
  if (layout.copyLhs) copyToOrder(builder, op, lhs, *layout.copyLhs);
  if (layout.copyRhs) copyToOrder(builder, op, rhs, *layout.copyRhs);
  RankedTensorType productType = resultType;
  if (layout.copyOut) {
    llvm::SmallVector<int64_t> sizes;
    for (int64_t index : *layout.copyOut) sizes.push_back(contraction.sizes[index]);
    productType = RankedTensorType::get(sizes, resultType.getElementType());
  }
  if (layout.swapped) std::swap(lhs, rhs);
  auto product = plan::ContractCommandOp::create(
      builder, op.getLoc(), productType, TypeRange(), lhs.view.base, rhs.view.base, Value(), Value(), Value(),
      builder.getDenseI64ArrayAttr(layout.batch), builder.getI64IntegerAttr(layout.m),
      builder.getI64IntegerAttr(layout.n), builder.getI64IntegerAttr(layout.k),
      builder.getDenseI64ArrayAttr(layout.lhsStrides), builder.getDenseI64ArrayAttr(layout.rhsStrides),
      builder.getDenseI64ArrayAttr(layout.outStrides), builder.getI64IntegerAttr(lhs.view.offset),
      builder.getI64IntegerAttr(rhs.view.offset),
      isParameter(rhs.view.base, symbols) ? builder.getUnitAttr() : UnitAttr(), StringAttr(), UnitAttr(), StringAttr());
  place::copy(op, product);
  if (!layout.copyOut) return product.getY();

  llvm::SmallVector<int64_t, 6> sizes(productType.getShape()), targetStrides;
  for (int64_t index : *layout.copyOut) targetStrides.push_back(*contraction.out[index]);
  auto copy = plan::CopyCommandOp::create(
      builder, op.getLoc(), resultType, product.getY(), builder.getDenseI64ArrayAttr(sizes),
      builder.getDenseI64ArrayAttr(rowMajorStrides(sizes)), builder.getDenseI64ArrayAttr(targetStrides),
      constantAffine(builder, 0), builder.getI64IntegerAttr(0), FloatAttr());
  place::copy(op, copy);
  return copy.getY();
}

namespace {

// The indices that are in `list` and in none of `others`, in their order.
IndexOrder without(llvm::ArrayRef<int64_t> list, std::initializer_list<llvm::ArrayRef<int64_t>> others) {
  IndexOrder left;
  for (int64_t index : list)
    if (llvm::none_of(others, [&](llvm::ArrayRef<int64_t> other) { return llvm::is_contained(other, index); }))
      left.push_back(index);
  return left;
}
IndexOrder joined(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  IndexOrder all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

// The operand's strides by index, in this order; true if the last `dense` of them are those of adjacent elements.
bool stridesInOrder(const Operand &operand, const IndexOrder &order, size_t dense,
                    llvm::SmallVectorImpl<int64_t> &strides) {
  llvm::SmallVector<int64_t, 6> sizes;
  for (int64_t index : order) {
    const size_t dim = llvm::find(operand.indices, index) - operand.indices.begin();
    sizes.push_back(operand.view.sizes[dim]);
    strides.push_back(operand.view.strides[dim]);
  }
  int64_t adjacent = 1;
  for (size_t d = order.size(); d-- > order.size() - dense; adjacent *= sizes[d])
    if (sizes[d] > 1 && strides[d] != adjacent) return false;
  return true;
}

// Rows of a grouped product: each of adjacent elements, the rows themselves at any strides. Copies where they are not.
llvm::SmallVector<int64_t> layRows(OpBuilder &builder, Operation *origin, Operand &operand,
                                   llvm::ArrayRef<int64_t> rows, const IndexOrder &columns) {
  const IndexOrder order = joined(rows, columns);
  llvm::SmallVector<int64_t> strides;
  if (!stridesInOrder(operand, order, columns.size(), strides)) {
    copyToOrder(builder, origin, operand, order);
    strides.assign(rowMajorStrides(cast<RankedTensorType>(operand.view.base.getType()).getShape()));
  }
  strides.truncate(rows.size());
  return strides;
}

} // namespace

Value lowerGroupedContract(OpBuilder &builder, onnx::GroupedContractOp op) {
  Operand lhs{viewOf(op.getLhs()), op.getLhsIndices()}, rhs{viewOf(op.getRhs()), op.getRhsIndices()};
  auto resultType = cast<RankedTensorType>(op.getType());
  llvm::ArrayRef<int64_t> rows = op.getRowIndices(), result = op.getResultIndices();
  const int64_t group[] = {static_cast<int64_t>(op.getGroupIndex())}, groups = op.getGroupCount();
  const bool sumsRows = op.sumsRows();
  llvm::SmallDenseMap<int64_t, int64_t> size{{group[0], groups}};
  for (const Operand *operand : {&lhs, &rhs})
    for (auto [index, extent] : llvm::zip_equal(operand->indices, operand->view.sizes)) size[index] = extent;
  auto extent = [&](const IndexOrder &order) {
    int64_t product = 1;
    for (int64_t index : order) product *= size[index];
    return product;
  };
  // The result of a sum over rows lies as [groups, k, n], whichever operand has the k that comes first there.
  if (sumsRows && llvm::is_contained(rhs.indices, without(result, {group, rows}).front())) std::swap(lhs, rhs);
  // Matrices keep their order of indices where they are read.
  const IndexOrder k = sumsRows ? without(lhs.indices, {rows}) : without(rhs.indices, {group, result});
  const IndexOrder n = without(rhs.indices, {group, rows, k});
  const llvm::SmallVector<int64_t> lhsStrides = layRows(builder, op, lhs, rows, k);
  llvm::SmallVector<int64_t> rhsStrides;
  bool isTransposed = false;
  const IndexOrder matrices = joined(group, joined(k, n));
  if (sumsRows) {
    rhsStrides = layRows(builder, op, rhs, rows, n);
  } else {
    llvm::SmallVector<int64_t> strides;
    const bool isStraight = stridesInOrder(rhs, matrices, matrices.size(), strides);
    strides.clear();
    isTransposed = !isStraight && stridesInOrder(rhs, joined(group, joined(n, k)), matrices.size(), strides);
    if (!isStraight && !isTransposed) copyToOrder(builder, op, rhs, matrices);
  }
  const IndexOrder order = sumsRows ? matrices : joined(rows, n);
  llvm::SmallVector<int64_t, 6> sizes, rowSizes;
  for (int64_t index : order) sizes.push_back(size[index]);
  for (int64_t index : rows) rowSizes.push_back(size[index]);
  Value y = plan::GroupedContractCommandOp::create(
      builder, op.getLoc(), RankedTensorType::get(sizes, resultType.getElementType()), lhs.view.base, rhs.view.base,
      op.getGroups(), builder.getDenseI64ArrayAttr(rowSizes), builder.getI64IntegerAttr(extent(k)),
      builder.getI64IntegerAttr(extent(n)), builder.getI64IntegerAttr(groups), builder.getDenseI64ArrayAttr(lhsStrides),
      builder.getDenseI64ArrayAttr(rhsStrides), builder.getI64IntegerAttr(lhs.view.offset),
      builder.getI64IntegerAttr(rhs.view.offset), sumsRows ? builder.getUnitAttr() : UnitAttr(),
      isTransposed ? builder.getUnitAttr() : UnitAttr(), localStart(builder, op.getShardAxes(), groups),
      builder.getI64IntegerAttr(op.getGlobalGroups().value_or(groups)));
  if (llvm::ArrayRef<int64_t>(order) == result) return y;
  place::copy(op, y.getDefiningOp());
  const IndexStrides target =
      stridesByIndex(size_t(*llvm::max_element(order)) + 1, result, rowMajorStrides(resultType.getShape()));
  llvm::SmallVector<int64_t, 6> targetStrides;
  for (int64_t index : order) targetStrides.push_back(*target[size_t(index)]);
  return plan::CopyCommandOp::create(builder, op.getLoc(), resultType, y, builder.getDenseI64ArrayAttr(sizes),
                                     builder.getDenseI64ArrayAttr(rowMajorStrides(sizes)),
                                     builder.getDenseI64ArrayAttr(targetStrides), constantAffine(builder, 0),
                                     builder.getI64IntegerAttr(0), FloatAttr());
}

LoweredProduct::LoweredProduct(OpBuilder place, onnx::ContractOp contract, const SymbolTable &symbols) {
  Recorder recorder(made);
  place.setListener(&recorder);
  command = lowerContract(place, contract, symbols).getDefiningOp<plan::ContractCommandOp>();
}

void LoweredProduct::undo() {
  for (Operation *op : llvm::reverse(made)) op->erase();
}

} // namespace cleave::codegen
