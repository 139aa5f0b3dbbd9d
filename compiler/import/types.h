// ONNX types and tensors as MLIR types and attributes. Signless integers are signed; bool is i1.
#pragma once
#include "compiler/import/tensor_store.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "plan/plan.pb.h"

namespace cleave::import_ {

// Null for element types that are not supported (strings, complex).
mlir::Type elementType(mlir::MLIRContext &context, int32_t dataType);

// The plan's type; DTYPE_INVALID: none.
plan::DType planType(int32_t dataType);

// A tensor type; dimensions without a number are dynamic, without a shape it is unranked. Null for other kinds of
// values (sequences, maps) and unsupported elements.
mlir::Type valueType(mlir::MLIRContext &context, const ::onnx::TypeProto &type);
// The type that stands for "not known yet": tensor<*xindex>.
mlir::Type unknownType(mlir::MLIRContext &context);

mlir::RankedTensorType tensorType(mlir::MLIRContext &context, const StoredTensor &tensor);
// The type of a parameter that holds it in memory: tensor<..xui8> for packed elements and floats of a byte.
mlir::RankedTensorType storageType(mlir::MLIRContext &context, const StoredTensor &tensor);
// `count` elements of 2 or 4 bits as one byte each, the element in its lowest bits.
std::string unpacked(const char *bytes, int64_t bits, int64_t count);
// Copies the bytes, which must be there; a splat when all elements are equal.
mlir::DenseElementsAttr elementsAttr(mlir::MLIRContext &context, const StoredTensor &tensor);

} // namespace cleave::import_
