#include "compiler/import/tensor_values.h"
#include "compiler/recipe/model_training.h"
#include <bit>
#include <cmath>
#include <cstring>

using ::onnx::TensorProto;

namespace cleave::import_ {
namespace {

template <typename Element> Element load(const char *at) {
  Element element;
  std::memcpy(&element, at, sizeof element);
  return element;
}

bool maskValue(double value) { return !std::isfinite(value) || value <= -1e30; }

} // namespace

bool allEqual(const StoredTensor &tensor) {
  if (!tensor.bytes || tensor.length == 0) return false;
  size_t unit = elementBytes(tensor.dataType);
  // Equal to itself shifted by one element.
  return std::memcmp(tensor.bytes, tensor.bytes + unit, tensor.length - unit) == 0;
}

std::optional<double> firstNumber(const StoredTensor &tensor) {
  if (!tensor.bytes || tensor.length == 0) return std::nullopt;
  switch (tensor.dataType) {
  case TensorProto::FLOAT:
    return recipe::shortest(load<float>(tensor.bytes));
  case TensorProto::DOUBLE:
    return load<double>(tensor.bytes);
  case TensorProto::INT64:
    return static_cast<double>(load<int64_t>(tensor.bytes));
  case TensorProto::INT32:
    return load<int32_t>(tensor.bytes);
  case TensorProto::BOOL:
    return load<uint8_t>(tensor.bytes);
  default:
    return std::nullopt;
  }
}

bool looksLikeMask(const StoredTensor &tensor) {
  if (!tensor.bytes || !tensor.isFloat()) return false;
  int64_t count = tensor.elements();
  for (int64_t i = 0; i < count; ++i) {
    switch (tensor.dataType) {
    case TensorProto::FLOAT:
      if (maskValue(load<float>(tensor.bytes + 4 * i))) return true;
      break;
    case TensorProto::DOUBLE:
      if (maskValue(load<double>(tensor.bytes + 8 * i))) return true;
      break;
    case TensorProto::BFLOAT16:
      if (maskValue(std::bit_cast<float>(uint32_t(load<uint16_t>(tensor.bytes + 2 * i)) << 16))) return true;
      break;
    default: { // float16: all ones in the exponent, or its lowest finite value
      uint16_t bits = load<uint16_t>(tensor.bytes + 2 * i);
      if ((bits & 0x7c00) == 0x7c00 || bits == 0xfbff) return true;
    }
    }
  }
  return false;
}

double number(const ::onnx::NodeProto &node, const char *name, double missing) {
  for (const ::onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return attribute.type() == ::onnx::AttributeProto::INT ? static_cast<double>(attribute.i())
                                                             : recipe::shortest(attribute.f());
  return missing;
}

bool sameContent(const StoredTensor &a, const StoredTensor &b) {
  return a.bytes && b.bytes && a.dataType == b.dataType && a.shape == b.shape &&
         std::memcmp(a.bytes, b.bytes, a.length) == 0;
}

bool transposedContent(const StoredTensor &a, const StoredTensor &b) {
  if (!a.bytes || !b.bytes || a.dataType != b.dataType || a.shape.size() != 2 || b.shape.size() != 2) return false;
  int64_t rows = a.shape[0], columns = a.shape[1];
  if (b.shape[0] != columns || b.shape[1] != rows) return false;
  size_t unit = elementBytes(a.dataType);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (std::memcmp(a.bytes + (i * columns + j) * unit, b.bytes + (j * rows + i) * unit, unit) != 0) return false;
  return true;
}

} // namespace cleave::import_
