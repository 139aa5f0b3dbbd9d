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

LoweredProduct::LoweredProduct(OpBuilder place, onnx::ContractOp contract, const SymbolTable &symbols) {
  Recorder recorder(made);
  place.setListener(&recorder);
  command = lowerContract(place, contract, symbols).getDefiningOp<plan::ContractCommandOp>();
}

void LoweredProduct::undo() {
  for (Operation *op : llvm::reverse(made)) op->erase();
}

} // namespace cleave::codegen
