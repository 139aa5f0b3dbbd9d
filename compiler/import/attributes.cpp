#include "compiler/import/attributes.h"
#include "compiler/import/types.h"
#include "mlir/IR/Builders.h"
#include <fmt/format.h>

using namespace mlir;
using ::onnx::AttributeProto;

namespace cleave::import_ {
namespace {

// Files of the first IR versions may leave the type out.
AttributeProto::AttributeType typeOf(const AttributeProto &attribute) {
  if (attribute.has_type() && attribute.type() != AttributeProto::UNDEFINED) return attribute.type();
  if (attribute.has_f()) return AttributeProto::FLOAT;
  if (attribute.has_i()) return AttributeProto::INT;
  if (attribute.has_s()) return AttributeProto::STRING;
  if (attribute.has_t()) return AttributeProto::TENSOR;
  if (attribute.floats_size()) return AttributeProto::FLOATS;
  if (attribute.ints_size()) return AttributeProto::INTS;
  if (attribute.strings_size()) return AttributeProto::STRINGS;
  return AttributeProto::UNDEFINED;
}

} // namespace

Result<Attribute> convertAttribute(MLIRContext &context, const AttributeProto &attribute, TensorStore &store,
                                   const std::string &where) {
  Builder builder(&context);
  switch (typeOf(attribute)) {
  case AttributeProto::FLOAT:
    return Attribute(builder.getF32FloatAttr(attribute.f()));
  case AttributeProto::INT:
    return Attribute(builder.getI64IntegerAttr(attribute.i()));
  case AttributeProto::STRING:
    return Attribute(builder.getStringAttr(attribute.s()));
  case AttributeProto::FLOATS:
    return Attribute(builder.getDenseF32ArrayAttr({attribute.floats().data(), size_t(attribute.floats_size())}));
  case AttributeProto::INTS: {
    llvm::SmallVector<int64_t> values(attribute.ints().begin(), attribute.ints().end());
    return Attribute(builder.getDenseI64ArrayAttr(values));
  }
  case AttributeProto::STRINGS: {
    llvm::SmallVector<Attribute> values;
    for (const std::string &value : attribute.strings()) values.push_back(builder.getStringAttr(value));
    return Attribute(builder.getArrayAttr(values));
  }
  case AttributeProto::TENSOR: {
    Result<StoredTensor> tensor = store.locate(attribute.t());
    if (!tensor) return tensor.status();
    if (!tensor->bytes)
      return inputError(
          fmt::format("{}: attribute '{}' is stored in '{}', which is missing", where, attribute.name(), tensor->path));
    return Attribute(elementsAttr(context, *tensor));
  }
  case AttributeProto::TYPE_PROTO:
    if (Type type = valueType(context, attribute.tp())) return Attribute(TypeAttr::get(type));
    return inputError(fmt::format("{}: attribute '{}' is a type that is not supported", where, attribute.name()));
  default:
    return inputError(fmt::format("{}: attribute '{}' is of a kind that is not supported ({})", where, attribute.name(),
                                  AttributeProto::AttributeType_Name(attribute.type())));
  }
}

DenseElementsAttr constantValue(MLIRContext &context, const AttributeProto &attribute) {
  Type i64 = IntegerType::get(&context, 64), f32 = Float32Type::get(&context);
  if (attribute.name() == "value_int") return DenseElementsAttr::get(RankedTensorType::get({}, i64), attribute.i());
  if (attribute.name() == "value_float") return DenseElementsAttr::get(RankedTensorType::get({}, f32), attribute.f());
  if (attribute.name() == "value_ints") {
    llvm::SmallVector<int64_t> values(attribute.ints().begin(), attribute.ints().end());
    return DenseElementsAttr::get(RankedTensorType::get({int64_t(values.size())}, i64),
                                  llvm::ArrayRef<int64_t>(values));
  }
  if (attribute.name() == "value_floats") {
    llvm::SmallVector<float> values(attribute.floats().begin(), attribute.floats().end());
    return DenseElementsAttr::get(RankedTensorType::get({int64_t(values.size())}, f32), llvm::ArrayRef<float>(values));
  }
  return {};
}

} // namespace cleave::import_
