#include "compiler/import/types.h"
#include "compiler/import/tensor_values.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;
using ::onnx::TensorProto;

namespace cleave::import_ {

Type elementType(MLIRContext &context, int32_t dataType) {
  using Signedness = IntegerType::SignednessSemantics;
  switch (dataType) {
  case TensorProto::FLOAT:
    return Float32Type::get(&context);
  case TensorProto::DOUBLE:
    return Float64Type::get(&context);
  case TensorProto::FLOAT16:
    return Float16Type::get(&context);
  case TensorProto::BFLOAT16:
    return BFloat16Type::get(&context);
  case TensorProto::INT8:
    return IntegerType::get(&context, 8);
  case TensorProto::INT16:
    return IntegerType::get(&context, 16);
  case TensorProto::INT32:
    return IntegerType::get(&context, 32);
  case TensorProto::INT64:
    return IntegerType::get(&context, 64);
  case TensorProto::UINT8:
    return IntegerType::get(&context, 8, Signedness::Unsigned);
  case TensorProto::UINT16:
    return IntegerType::get(&context, 16, Signedness::Unsigned);
  case TensorProto::UINT32:
    return IntegerType::get(&context, 32, Signedness::Unsigned);
  case TensorProto::UINT64:
    return IntegerType::get(&context, 64, Signedness::Unsigned);
  case TensorProto::BOOL:
    return IntegerType::get(&context, 1);
  default:
    return {};
  }
}

Type unknownType(MLIRContext &context) { return UnrankedTensorType::get(IndexType::get(&context)); }

Type valueType(MLIRContext &context, const ::onnx::TypeProto &type) {
  if (!type.has_tensor_type()) return {};
  Type element = elementType(context, type.tensor_type().elem_type());
  if (!element) return {};
  if (!type.tensor_type().has_shape()) return UnrankedTensorType::get(element);
  llvm::SmallVector<int64_t> shape;
  for (const ::onnx::TensorShapeProto::Dimension &dim : type.tensor_type().shape().dim())
    shape.push_back(dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : ShapedType::kDynamic);
  return RankedTensorType::get(shape, element);
}

RankedTensorType tensorType(MLIRContext &context, const StoredTensor &tensor) {
  return RankedTensorType::get(tensor.shape, elementType(context, tensor.dataType));
}

DenseElementsAttr elementsAttr(MLIRContext &context, const StoredTensor &tensor) {
  RankedTensorType type = tensorType(context, tensor);
  int64_t count = tensor.elements();
  if (count == 0) return DenseElementsAttr::get(type, llvm::ArrayRef<Attribute>());
  bool splat = allEqual(tensor);
  if (tensor.dataType == TensorProto::BOOL) {
    llvm::SmallVector<bool> values(splat ? 1 : count);
    for (size_t i = 0; i < values.size(); ++i) values[i] = tensor.bytes[i] != 0;
    return DenseElementsAttr::get(type, llvm::ArrayRef<bool>(values));
  }
  int64_t length = splat ? elementBytes(tensor.dataType) : tensor.length;
  return DenseElementsAttr::getFromRawBuffer(type, llvm::ArrayRef<char>(tensor.bytes, length));
}

} // namespace cleave::import_
