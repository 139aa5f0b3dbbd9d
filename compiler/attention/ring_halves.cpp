#include "compiler/attention/ring_halves.h"

using namespace mlir;
using cleave::onnx::tensorType;

namespace cleave::attention {

Value RingHalves::half(Value value, int64_t dim, int64_t which) const {
  auto type = tensorType(value);
  SmallVector<int64_t> starts(type.getRank(), 0), sizes(type.getShape()), steps(type.getRank(), 1);
  sizes[dim] /= 2;
  starts[dim] = which * sizes[dim];
  return f.make<onnx::SliceOp>(value, starts, sizes, steps);
}

Value RingHalves::joined(Value head, Value tail, int64_t dim) const {
  return f.make<onnx::ConcatOp>(ValueRange{head, tail}, dim);
}

// Do the keys of this turn come from an earlier device? By block.
Value RingHalves::fromEarlier(Value like, int64_t turn) const {
  auto type = RankedTensorType::get({count}, builder.getI64Type());
  Value place = f.make<onnx::IotaOp>(TypeAttr::get(type), builder.getI64IntegerAttr(0), ArrayAttr());
  Value earlier = f.make<onnx::GreaterOrEqualOp>(place, f.constant(type, static_cast<double>(turn)));
  return f.make<onnx::BroadcastOp>(earlier, tensorType(like).getShape(), ArrayRef<int64_t>{0});
}

Value RingHalves::halfByDevice(Value value, int64_t dim, int64_t turn) const {
  Value head = half(value, dim, 0);
  return f.where(fromEarlier(head, turn), head, half(value, dim, 1));
}

Value RingHalves::whereEarlier(Value value, int64_t turn, double neutral, bool isEarlier) const {
  Value none = f.like(value, neutral), earlier = fromEarlier(value, turn);
  return isEarlier ? f.where(earlier, value, none) : f.where(earlier, none, value);
}

} // namespace cleave::attention
