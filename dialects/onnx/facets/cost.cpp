// Cost facet: the arithmetic of products, convolutions, pools and attention. A multiply-add counts two.
#include "dialects/onnx/facets/expressions.h"
#include "dialects/onnx/formula.h"

namespace cleave::onnx {
namespace {

// A convolution visits, for every element of y, the kernel over the input channels of one group. `w` and `y` by shape.
double convolution(llvm::ArrayRef<int64_t> w, double resultElements) {
  double window = 1;
  for (int64_t size : w.drop_front()) window *= static_cast<double>(size);
  return 2 * window * resultElements;
}

double window(llvm::ArrayRef<int64_t> kernel) {
  double count = 1;
  for (int64_t size : kernel) count *= static_cast<double>(size);
  return count;
}

} // namespace

double elementsOf(mlir::Value tensor) { return static_cast<double>(tensorType(tensor).getNumElements()); }

double ContractOp::getFlops() {
  double contracted = 1;
  for (auto [letter, size] : llvm::zip_equal(getLhsIndices(), tensorType(getLhs()).getShape()))
    if (!llvm::is_contained(getResultIndices(), letter)) contracted *= static_cast<double>(size);
  return 2 * contracted * elementsOf(getY());
}

// Every row is multiplied by one group's matrix.
double GroupedContractOp::getFlops() {
  double flops = 2;
  llvm::SmallDenseSet<int64_t> counted{static_cast<int64_t>(getGroupIndex())};
  for (auto [indices, operand] : {std::pair{getLhsIndices(), getLhs()}, {getRhsIndices(), getRhs()}})
    for (auto [index, size] : llvm::zip_equal(indices, tensorType(operand).getShape()))
      if (counted.insert(index).second) flops *= static_cast<double>(size);
  return flops;
}

double ConvOp::getFlops() { return convolution(tensorType(getW()).getShape(), elementsOf(getY())); }
double ConvGradInputOp::getFlops() { return convolution(tensorType(getW()).getShape(), elementsOf(getDy())); }
double ConvGradWeightOp::getFlops() { return convolution(tensorType(getDw()).getShape(), elementsOf(getDy())); }
double MaxPoolOp::getFlops() { return window(getKernel()) * elementsOf(getY()); }
double MaxPoolGradOp::getFlops() { return window(getKernel()) * elementsOf(getDy()); }
double AveragePoolOp::getFlops() { return window(getKernel()) * elementsOf(getY()); }
double AveragePoolGradOp::getFlops() { return window(getKernel()) * elementsOf(getDy()); }

// 2 matmuls forward; 5 backward, where the scores are recomputed.
// A library skips the pairs that its band hides. Layout: [batch.., sequence, heads, features].
template <typename Op> static double attentionFlops(Op op, double products) {
  const int64_t queries = tensorType(op.getQuery()).getShape().take_back(3).front(),
                keys = tensorType(op.getKey()).getShape().take_back(3).front();
  return products * 2 * elementsOf(op.getQuery()) * static_cast<double>(keys) * op.getBand().part(queries, keys);
}
double ScaledAttentionOp::getFlops() { return attentionFlops(*this, 2); }
double ScaledAttentionGradOp::getFlops() { return attentionFlops(*this, 5); }

} // namespace cleave::onnx
