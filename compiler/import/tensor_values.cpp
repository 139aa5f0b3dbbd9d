#include "compiler/import/tensor_values.h"
#include "compiler/recipe/model_training.h"
#include "runtime/base/elements.h"
#include <cmath>
#include <cstring>
#include <set>

using ::onnx::TensorProto;

namespace cleave::import_ {
namespace {

template <typename Element> Element load(const char *at) {
  Element element;
  std::memcpy(&element, at, sizeof element);
  return element;
}

// An element of a float tensor whose bytes are known.
double elementAt(const StoredTensor &tensor, int64_t i) {
  switch (tensor.dataType) {
  case TensorProto::FLOAT:
    return load<float>(tensor.bytes + 4 * i);
  case TensorProto::DOUBLE:
    return load<double>(tensor.bytes + 8 * i);
  case TensorProto::BFLOAT16:
    return runtime::bf16ToFloat(load<uint16_t>(tensor.bytes + 2 * i));
  default:
    return runtime::fp16ToFloat(load<uint16_t>(tensor.bytes + 2 * i));
  }
}

} // namespace

bool allEqual(const StoredTensor &tensor) {
  if (!tensor.bytes || tensor.length == 0) return false;
  size_t unit = elementBytes(tensor.dataType);
  if (unit == 0) return false; // packed
  // Equal to itself shifted by one element.
  return std::memcmp(tensor.bytes, tensor.bytes + unit, tensor.length - unit) == 0;
}

bool hasDistinctRows(const StoredTensor &tensor) {
  if (!tensor.bytes || tensor.shape.empty() || tensor.shape.back() == 0) return false;
  const auto width = static_cast<size_t>(tensor.shape.back() * elementBytes(tensor.dataType));
  std::set<std::string_view> rows;
  for (size_t at = 0; at + width <= static_cast<size_t>(tensor.length); at += width)
    if (!rows.insert(std::string_view(tensor.bytes + at, width)).second) return false;
  return true;
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
  const double lowest = tensor.dataType == TensorProto::FLOAT16 ? -65504 : -1e30;
  double away = 0; // the number beside the zeros
  bool hasZeros = false, isTwoValued = true;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = elementAt(tensor, i);
    if (!std::isfinite(value) || value <= lowest) return true;
    if (value == 0)
      hasZeros = true;
    else if (away == 0)
      away = value;
    else
      isTwoValued &= value == away;
  }
  return isTwoValued && hasZeros && away <= -100;
}

bool isSinusoidal(const StoredTensor &tensor) {
  if (!tensor.bytes || (tensor.dataType != TensorProto::FLOAT && tensor.dataType != TensorProto::DOUBLE)) return false;
  const int64_t width = tensor.shape.empty() ? 0 : tensor.shape.back();
  if (width < 4 || width % 2 != 0) return false;
  int64_t rows = 0; // that are not zero
  bool hasFractions = false;
  for (int64_t begin = 0; begin < tensor.elements(); begin += width) {
    double squares = 0;
    for (int64_t i = begin; i < begin + width; ++i) {
      const double value = elementAt(tensor, i);
      if (!(std::abs(value) <= 1 + 1e-6)) return false;
      hasFractions |= value != 0 && std::abs(value) != 1;
      squares += value * value;
    }
    if (squares == 0) continue;
    if (std::abs(squares - static_cast<double>(width) / 2) > 1e-4 * static_cast<double>(width)) return false;
    ++rows;
  }
  return rows >= 2 && hasFractions;
}

bool isTableOfAngles(const StoredTensor &tensor) {
  if (!tensor.bytes || (tensor.dataType != TensorProto::FLOAT && tensor.dataType != TensorProto::DOUBLE)) return false;
  auto positions = std::ranges::find_if(tensor.shape, [](int64_t size) { return size > 1; });
  if (positions == tensor.shape.end() || *positions < 5) return false;
  const int64_t rows = *positions, width = tensor.elements() / rows;
  if (width < 2) return false;
  bool turns = false; // not a ramp: sines of small angles are nearly one
  for (int64_t column = 0; column < width; ++column) {
    auto at = [&](int64_t row) { return elementAt(tensor, row * width + column); };
    const double start = at(0);
    if (start != 0 && start != 1) return false;
    double along = 0, squares = 0;
    for (int64_t row = 0; row < rows; ++row) {
      if (!(std::abs(at(row)) <= 1 + 1e-6)) return false;
      if (row == 0 || row + 1 == rows) continue;
      along += at(row) * (at(row - 1) + at(row + 1));
      squares += at(row) * at(row);
    }
    if (squares == 0) return false;
    const double twiceCosine = along / squares;
    if (!(std::abs(twiceCosine) <= 2 + 1e-4)) return false;
    for (int64_t row = 1; row + 1 < rows; ++row)
      if (std::abs(at(row - 1) + at(row + 1) - twiceCosine * at(row)) > 1e-3) return false;
    turns |= twiceCosine < 1.9;
  }
  return turns;
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
  if (unit == 0) return false; // packed
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (std::memcmp(a.bytes + (i * columns + j) * unit, b.bytes + (j * rows + i) * unit, unit) != 0) return false;
  return true;
}

} // namespace cleave::import_
