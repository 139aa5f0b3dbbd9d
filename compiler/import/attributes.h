// The attributes of an ONNX node as MLIR attributes, in the forms onnx.node documents.
#pragma once
#include "compiler/import/tensor_store.h"
#include "mlir/IR/BuiltinAttributes.h"

namespace cleave::import_ {

// i64, f32, string, arrays of these, tensors, types. `where` names file and node in errors. Graph attributes are not
// for this function. Errors: tensor lists, sparse tensors, graph lists.
Result<mlir::Attribute> convertAttribute(mlir::MLIRContext &context, const ::onnx::AttributeProto &attribute,
                                         TensorStore &store, const std::string &where);

// The value of a Constant node written with value_int, value_ints, value_float or value_floats; null for other
// attributes.
mlir::DenseElementsAttr constantValue(mlir::MLIRContext &context, const ::onnx::AttributeProto &attribute);

} // namespace cleave::import_
