// The vocabulary in which the factor-rule files of this folder are written.
//
//   FactorRule rule;
//   TensorFactors x = parallel(rule, shape(getX()));    // one new parallel factor a dimension
//   rule.operands = {x};
//   rule.results = {x};                                 // elementwise: both share them
#pragma once
#include "dialects/onnx/Onnx.h"

namespace cleave::onnx::rules {

using dist::Factor;
using dist::FactorRule;
using dist::TensorFactors;

inline llvm::ArrayRef<int64_t> shape(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType()).getShape();
}
inline TensorFactors newFactors(FactorRule &rule, llvm::ArrayRef<int64_t> sizes, Factor::Kind kind) {
  TensorFactors tensor;
  for (int64_t size : sizes) tensor.push_back({rule.add(size, kind)});
  return tensor;
}
inline TensorFactors parallel(FactorRule &rule, llvm::ArrayRef<int64_t> sizes) {
  return newFactors(rule, sizes, Factor::Parallel);
}
// Every dimension with a factor of its own that stays whole.
inline TensorFactors whole(FactorRule &rule, llvm::ArrayRef<int64_t> sizes) {
  return newFactors(rule, sizes, Factor::Whole);
}
// A partial sum in operand `index` alone passes through.
inline void linearIn(FactorRule &rule, std::initializer_list<size_t> operands) {
  rule.linearity = FactorRule::LinearInOne;
  rule.linearOperands.assign(rule.operands.size(), false);
  for (size_t operand : operands) rule.linearOperands[operand] = true;
}
// Partial sums pass through if all operands are partial over the same axes.
inline void linearTogether(FactorRule &rule) {
  rule.linearity = FactorRule::LinearJointly;
  rule.linearOperands.assign(rule.operands.size(), true);
}
// `value` is zero everywhere: a splat constant, possibly broadcast or reshaped.
inline bool isZero(mlir::Value value) {
  mlir::Operation *op = value.getDefiningOp();
  while (llvm::isa_and_present<BroadcastOp, ReshapeOp, TransposeOp>(op)) op = op->getOperand(0).getDefiningOp();
  auto constant = llvm::dyn_cast_or_null<ConstantOp>(op);
  auto dense = constant ? llvm::dyn_cast<mlir::DenseElementsAttr>(constant.getValue()) : mlir::DenseElementsAttr();
  if (!dense || !dense.isSplat()) return false;
  if (llvm::isa<mlir::FloatType>(dense.getElementType())) return dense.getSplatValue<llvm::APFloat>().isZero();
  return dense.getElementType().isInteger() && dense.getSplatValue<llvm::APInt>().isZero();
}

} // namespace cleave::onnx::rules
