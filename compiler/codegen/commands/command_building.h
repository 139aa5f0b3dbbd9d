// Small builders shared by the passes that make plan commands.
#pragma once
#include "dialects/onnx/Onnx.h"
#include "dialects/place/Place.h"
#include "dialects/plan/Plan.h"
#include "llvm/ADT/StringExtras.h"

namespace cleave::codegen {

// The attribute that is the same everywhere.
inline plan::AffineOfCoordinateAttr constantAffine(mlir::OpBuilder &builder, int64_t base) {
  return plan::AffineOfCoordinateAttr::get(builder.getContext(), base, builder.getArrayAttr({}),
                                           builder.getDenseI64ArrayAttr({}));
}

// stride * (index along axes).
inline plan::AffineOfCoordinateAttr indexAffine(mlir::OpBuilder &builder, mlir::ArrayAttr axes, int64_t stride) {
  return plan::AffineOfCoordinateAttr::get(builder.getContext(), 0, builder.getArrayAttr({axes}),
                                           builder.getDenseI64ArrayAttr({stride}));
}

// Bytes of one element in a buffer.
inline int64_t elementBytes(mlir::Type type) {
  unsigned bits = type.getIntOrFloatBitWidth();
  return bits < 8 ? 1 : bits / 8;
}
inline int64_t tensorBytes(mlir::Type type) {
  auto tensor = mlir::cast<mlir::RankedTensorType>(type);
  return tensor.getNumElements() * elementBytes(tensor.getElementType());
}

// A name for the devices that a collective over these axes joins, whatever the axes' order.
inline std::string groupName(mlir::ArrayAttr axes) {
  llvm::SmallVector<llvm::StringRef> names;
  for (mlir::Attribute axis : axes) names.push_back(mlir::cast<mlir::StringAttr>(axis).getValue());
  llvm::sort(names);
  return llvm::join(names, ",");
}

} // namespace cleave::codegen
