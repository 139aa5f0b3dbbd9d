// Small builders shared by the passes that make plan commands.
#pragma once
#include "dialects/onnx/kinds.h"
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

// Where the local part of a dimension of `local` entries starts.
inline plan::AffineOfCoordinateAttr localStart(mlir::OpBuilder &builder, std::optional<mlir::ArrayAttr> axes,
                                               int64_t local) {
  return axes && !axes->empty() ? indexAffine(builder, *axes, local) : constantAffine(builder, 0);
}

using onnx::bytesOf;
using onnx::elementBytes;

// A name for the devices that a collective over these axes joins, whatever the axes' order.
inline std::string groupName(mlir::ArrayAttr axes) {
  llvm::SmallVector<llvm::StringRef> names;
  for (mlir::Attribute axis : axes) names.push_back(mlir::cast<mlir::StringAttr>(axis).getValue());
  llvm::sort(names);
  return llvm::join(names, ",");
}

} // namespace cleave::codegen
