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
// A library skips the blocks above the causal diagonal, so half remain. Layout: [batch, sequence, heads, features].
static double attentionFlops(mlir::Value query, mlir::Value key, double products, bool causal) {
  double flops = products * 2 * elementsOf(query) * static_cast<double>(tensorType(key).getShape()[1]);
  return causal ? flops / 2 : flops;
}
double ScaledAttentionOp::getFlops() { return attentionFlops(getQuery(), getKey(), 2, getCausal()); }
double ScaledAttentionGradOp::getFlops() { return attentionFlops(getQuery(), getKey(), 5, getCausal()); }

} // namespace cleave::onnx
