#include "compiler/training/fp8/quantized_state.h"
#include "runtime/plan/row_scales.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {

constexpr int64_t minElements = 4096; // as in bitsandbytes and torchao
constexpr int64_t minRow = 32;        // as a block of MXFP8: scales take an eighth of the codes' bytes at most

bool isQuantizable(ArrayRef<int64_t> shape) {
  return shape.size() >= 2 && ShapedType::getNumElements(shape) >= minElements;
}

QuantizedRows::QuantizedRows(RankedTensorType type, bool isStacked) : type(type), first(type.getRank()) {
  int64_t elements = 1;
  while (first > (isStacked ? 1 : 0) && elements < minRow) elements *= type.getDimSize(--first);
}

RankedTensorType QuantizedRows::codeType() const {
  return RankedTensorType::get(type.getShape(), Float8E4M3FNType::get(type.getContext()));
}

RankedTensorType QuantizedRows::scaleType() const {
  SmallVector<int64_t> shape(type.getShape());
  std::fill(shape.begin() + first, shape.end(), 1);
  return RankedTensorType::get(shape, Float32Type::get(type.getContext()));
}

Value QuantizedRows::numbers(Formula &f, Value codes, Value scales) const {
  Type element = type.getElementType();
  Value rows = f.make<onnx::ReshapeOp>(f.cast(scales, element), type.getShape().take_front(first));
  return f.mul(f.cast(codes, element), f.expand(rows, type.getShape(), within()));
}

// As runtime::rowScale.
QuantizedRows::Stored QuantizedRows::stored(Formula &f, Value numbers) const {
  Value largest = f.make<onnx::ReduceMaxOp>(f.make<onnx::AbsOp>(numbers), within());
  Value isThere = f.make<onnx::GreaterOp>(largest, f.like(largest, runtime::minRowMaximum));
  Value scales = f.where(isThere, f.div(largest, f.like(largest, runtime::maxCode)), f.like(largest, 1));
  scales = f.cast(scales, scaleType().getElementType());
  Value divisor = f.expand(f.cast(scales, type.getElementType()), type.getShape(), within());
  return {f.cast(f.div(numbers, divisor), codeType().getElementType()),
          f.make<onnx::ReshapeOp>(scales, scaleType().getShape())};
}

SmallVector<int64_t> QuantizedRows::within() const { return llvm::to_vector(llvm::seq(first, type.getRank())); }

} // namespace cleave::training
