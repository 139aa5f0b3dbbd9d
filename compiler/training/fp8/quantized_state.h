// State of an optimizer in 8 bits, as `state_dtype: fp8` keeps momenta: codes in e4m3 and one f32 scale for each row,
// the largest absolute value of the row / 448, so that number = code * scale.
//
//   exp_avg/W        tensor<512x64xf8E4M3FN>     the codes; a cast to them saturates
//   exp_avg.scale/W  tensor<512x1xf32>           1 where a row is zero
//
// A row is what the last dimensions index that together have at least 32 elements: the last one of a linear layer,
// all but the first of a convolution. Everything is built of core ops, so a row may lie split over devices, and its
// largest value is then the largest of their parts'.
#pragma once
#include "dialects/onnx/formula.h"

namespace cleave::training {

// Where a parameter's numbers may be in 8 bits. Tensors of less than 4096 elements and vectors stay as they are, as in
// bitsandbytes and torchao: their memory does not count, and norms and biases learn less from rounded means. `shape`:
// of one parameter, without the number of stacked ones.
bool isQuantizable(llvm::ArrayRef<int64_t> shape);

class QuantizedRows {
public:
  // `type`: of the numbers. `isStacked`: its first dimension counts parameters, whose rows are their own.
  QuantizedRows(mlir::RankedTensorType type, bool isStacked);

  mlir::RankedTensorType codeType() const;
  mlir::RankedTensorType scaleType() const; // the dimensions within a row are 1
  mlir::Value numbers(onnx::Formula &f, mlir::Value codes, mlir::Value scales) const;
  struct Stored {
    mlir::Value codes, scales;
  };
  Stored stored(onnx::Formula &f, mlir::Value numbers) const;

private:
  llvm::SmallVector<int64_t> within() const;

  mlir::RankedTensorType type;
  int64_t first; // dimension within a row
};

} // namespace cleave::training
