// The sliding window of a convolution or pool as an ONNX node describes it: strides, dilations, explicit or automatic
// padding, rounding of the output size.
#pragma once
#include "compiler/normalize/node.h"

namespace cleave::normalize {

struct Window {
  Dims kernel, strides, padsBegin, padsEnd, dilations;
  Dims extraEnd; // what ceil_mode adds to padsEnd (already included there)

  mlir::DenseI64ArrayAttr attribute(CoreBuilder &b, const Dims &values) const {
    return b.builder.getDenseI64ArrayAttr(values);
  }
};

// Of node `n` over the spatial sizes `input`.
Window windowOf(Node &n, llvm::ArrayRef<int64_t> input, llvm::ArrayRef<int64_t> kernel);

} // namespace cleave::normalize
