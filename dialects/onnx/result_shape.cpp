#include "dialects/onnx/result_shape.h"
#include "dialects/onnx/Onnx.h"
#include <llvm/ADT/TypeSwitch.h>

using namespace mlir;

namespace cleave::onnx {

void setResultShape(Operation *op, ArrayRef<int64_t> shape) {
  auto typeOf = [&](Type type) { return TypeAttr::get(cast<RankedTensorType>(type).clone(shape)); };
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](ReshapeOp reshape) { reshape.setShape(shape); })
      .Case([&](BroadcastOp broadcast) { broadcast.setShape(shape); })
      .Case([&](SliceOp slice) { slice.setSizes(shape); })
      .Case([&](IotaOp iota) { iota.setTypeAttr(typeOf(iota.getType())); })
      .Case([&](RandomUniformOp random) { random.setTypeAttr(typeOf(random.getType())); })
      .Case([&](ScatterAddOp scatter) { scatter.setRows(shape[scatter.getAxis()]); })
      .Case([&](ConvGradInputOp conv) { conv.setInputShape(shape); })
      .Case([&](ConvGradWeightOp conv) { conv.setWeightShape(shape); })
      .Case([&](AveragePoolGradOp pool) { pool.setInputShape(shape); });
}

} // namespace cleave::onnx
