#include "compiler/import/types.h"
#include "compiler/import/tensor_values.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;
using ::onnx::TensorProto;

namespace cleave::import_ {

plan::DType planType(int32_t dataType) {
  static const std::map<int32_t, plan::DType> types = {
      {TensorProto::FLOAT, plan::F32},     {TensorProto::DOUBLE, plan::F64}, {TensorProto::FLOAT16, plan::F16},
      {TensorProto::BFLOAT16, plan::BF16}, {TensorProto::INT8, plan::I8},    {TensorProto::INT16, plan::I16},
      {TensorProto::INT32, plan::I32},     {TensorProto::INT64, plan::I64},  {TensorProto::UINT8, plan::U8},
      {TensorProto::UINT16, plan::U16},    {TensorProto::UINT32, plan::U32}, {TensorProto::UINT64, plan::U64},
      {TensorProto::BOOL, plan::BOOL}};
  auto found = types.find(dataType);
  return found == types.end() ? plan::DTYPE_INVALID : found->second;
}

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
  case TensorProto::FLOAT8E4M3FN:
    return Float8E4M3FNType::get(&context);
  case TensorProto::FLOAT8E4M3FNUZ:
    return Float8E4M3FNUZType::get(&context);
  case TensorProto::FLOAT8E5M2:
    return Float8E5M2Type::get(&context);
  case TensorProto::FLOAT8E5M2FNUZ:
    return Float8E5M2FNUZType::get(&context);
  case TensorProto::FLOAT8E8M0:
    return Float8E8M0FNUType::get(&context);
  case TensorProto::FLOAT4E2M1:
    return Float4E2M1FNType::get(&context);
  case TensorProto::INT4:
    return IntegerType::get(&context, 4);
  case TensorProto::UINT4:
    return IntegerType::get(&context, 4, Signedness::Unsigned);
  case TensorProto::INT2:
    return IntegerType::get(&context, 2);
  case TensorProto::UINT2:
    return IntegerType::get(&context, 2, Signedness::Unsigned);
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

RankedTensorType storageType(MLIRContext &context, const StoredTensor &tensor) {
  RankedTensorType type = tensorType(context, tensor);
  const int64_t bits = elementBits(tensor.dataType);
  Type bytes = IntegerType::get(&context, 8, IntegerType::Unsigned);
  if (bits < 8) return RankedTensorType::get({tensor.length}, bytes);
  return bits == 8 && isa<FloatType>(type.getElementType()) ? type.clone(bytes) : type;
}

std::string unpacked(const char *bytes, int64_t bits, int64_t count) {
  std::string elements(size_t(count), '\0');
  const int64_t each = 8 / bits;
  for (int64_t i = 0; i < count; ++i)
    elements[size_t(i)] = char(uint8_t(bytes[i / each]) >> (i % each * bits) & ((1 << bits) - 1));
  return elements;
}

DenseElementsAttr elementsAttr(MLIRContext &context, const StoredTensor &tensor) {
  RankedTensorType type = tensorType(context, tensor);
  int64_t count = tensor.elements();
  if (count == 0) return DenseElementsAttr::get(type, llvm::ArrayRef<Attribute>());
  if (const int64_t bits = elementBits(tensor.dataType); bits < 8) {
    const std::string elements = unpacked(tensor.bytes, bits, count);
    return DenseElementsAttr::getFromRawBuffer(type, llvm::ArrayRef<char>(elements.data(), elements.size()));
  }
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
