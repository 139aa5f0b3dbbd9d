#include "compiler/normalize/check_node.h"
#include "compiler/normalize/further_schemas.h"
#include "compiler/normalize/node.h"
#include "compiler/normalize/operator_demands.h"
#include "onnx/defs/schema.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include <map>

using namespace mlir;
using ::onnx::AttributeProto;
using ::onnx::OpSchema;

namespace cleave::normalize {
namespace {

using Fault = std::optional<std::string>;

const OpSchema *schemaFor(onnx::NodeOp node) {
  std::string domain = node.getDomain().str(), op = node.getOpType().str();
  auto found = furtherSchemas().find(domain + "::" + op);
  if (found != furtherSchemas().end()) return &found->second;
  constexpr int64_t newest = 1 << 20;
  return ::onnx::OpSchemaRegistry::Schema(op, int(std::min<int64_t>(node.getVersion(), newest)), domain);
}

// --- attributes

bool isOfKind(Attribute value, AttributeProto::AttributeType kind) {
  switch (kind) {
  case AttributeProto::FLOAT:
    return isa<FloatAttr>(value);
  case AttributeProto::INT:
  case AttributeProto::GRAPH: // the number of the node's region
    return isa<IntegerAttr>(value);
  case AttributeProto::STRING:
    return isa<StringAttr>(value);
  case AttributeProto::FLOATS:
    return isa<DenseF32ArrayAttr>(value);
  case AttributeProto::INTS:
    return isa<DenseI64ArrayAttr>(value);
  case AttributeProto::STRINGS:
    return isa<ArrayAttr>(value);
  case AttributeProto::TENSOR:
    return isa<ElementsAttr>(value) && !isa<DenseArrayAttr>(value);
  case AttributeProto::TYPE_PROTO:
    return isa<TypeAttr>(value);
  default:
    return false;
  }
}

std::string attributeName(StringRef name) { return ("its attribute '" + name + "'").str(); }

Fault attributeFault(onnx::NodeOp node, const OpSchema &schema) {
  for (NamedAttribute named : node.getOnnxAttributes()) {
    std::string name = named.getName().str();
    if (name.starts_with("__") || name == onnx::paddingRowName) continue; // ONNX's mark of what is not for operators
    auto declared = schema.attributes().find(name);
    if (declared == schema.attributes().end()) return "has no attribute '" + name + "'";
    if (!isOfKind(named.getValue(), declared->second.type))
      return attributeName(name) + " is not of the type " + AttributeProto::AttributeType_Name(declared->second.type);
    if (declared->second.type == AttributeProto::GRAPH) {
      int64_t region = cast<IntegerAttr>(named.getValue()).getInt();
      if (region < 0 || region >= int64_t(node->getNumRegions())) return attributeName(name) + " is no graph";
    }
  }
  for (const auto &[name, declared] : schema.attributes())
    if (declared.required && !node.getOnnxAttributes().get(name)) return "needs the attribute '" + name + "'";
  return std::nullopt;
}

std::string rangeFault(StringRef name, int64_t value, int64_t least, int64_t most) {
  return attributeName(name) +
         (" is " + Twine(value) + ", which is not from " + Twine(least) + " to " + Twine(most)).str();
}

Fault valueFault(onnx::NodeOp node) {
  DictionaryAttr attributes = node.getOnnxAttributes();
  StringRef op = node.getOpType();
  for (const NumberDemand &demand : numberDemands()) {
    auto value = dyn_cast_or_null<IntegerAttr>(attributes.get(demand.attribute));
    if (!value || (!demand.op.empty() && demand.op != op)) continue;
    if (value.getInt() < demand.least || value.getInt() > demand.most)
      return rangeFault(demand.attribute, value.getInt(), demand.least, demand.most);
  }
  for (const WordDemand &demand : wordDemands()) {
    auto value = dyn_cast_or_null<StringAttr>(attributes.get(demand.attribute));
    if (!value || (!demand.op.empty() && demand.op != op)) continue;
    SmallVector<StringRef> words;
    demand.words.split(words, '|');
    if (!llvm::is_contained(words, value.getValue()))
      return attributeName(demand.attribute) + " is '" + value.str() + "', which is none of " + llvm::join(words, ", ");
  }
  return std::nullopt;
}

Fault windowFault(onnx::NodeOp node) {
  if (!isWindowed(node.getOpType())) return std::nullopt;
  auto x = node.getInputs().empty() ? RankedTensorType() : dyn_cast<RankedTensorType>(node.getInputs()[0].getType());
  for (const WindowDemand &demand : windowDemands()) {
    auto list = dyn_cast_or_null<DenseI64ArrayAttr>(node.getOnnxAttributes().get(demand.attribute));
    if (!list) continue;
    int64_t spatial = x ? x.getRank() - 2 : list.size() / demand.each;
    if (list.size() != demand.each * spatial)
      return attributeName(demand.attribute) + " has " + std::to_string(list.size()) + " numbers, " +
             std::to_string(spatial) + " spatial dimensions need " + std::to_string(demand.each * spatial);
    for (int64_t value : list.asArrayRef())
      if (value < demand.least || value > demand.most)
        return rangeFault(demand.attribute, value, demand.least, demand.most);
  }
  return std::nullopt;
}

// --- operands

// "tensor(float)"; empty where the element type is not known yet.
std::string onnxName(Type type, Type narrow) {
  auto tensor = dyn_cast<TensorType>(type);
  if (!tensor) return "";
  Type element = narrow ? narrow : tensor.getElementType();
  std::string name;
  if (element.isF32()) name = "float";
  if (element.isF64()) name = "double";
  if (element.isF16()) name = "float16";
  if (element.isBF16()) name = "bfloat16";
  if (isa<Float8E4M3FNType>(element)) name = "float8e4m3fn";
  if (isa<Float8E4M3FNUZType>(element)) name = "float8e4m3fnuz";
  if (isa<Float8E5M2Type>(element)) name = "float8e5m2";
  if (isa<Float8E5M2FNUZType>(element)) name = "float8e5m2fnuz";
  if (isa<Float8E8M0FNUType>(element)) name = "float8e8m0";
  if (isa<Float4E2M1FNType>(element)) name = "float4e2m1";
  if (auto integer = dyn_cast<IntegerType>(element))
    name =
        integer.getWidth() == 1 ? "bool" : (integer.isUnsigned() ? "uint" : "int") + std::to_string(integer.getWidth());
  return name.empty() ? name : "tensor(" + name + ")";
}

std::string inputName(size_t i, const OpSchema::FormalParameter &formal) {
  return "its input " + std::to_string(i) + " ('" + formal.GetName() + "')";
}

Fault countFault(const char *what, size_t count, int least, int most) {
  if (count >= size_t(least) && count <= size_t(most)) return std::nullopt;
  return "has " + std::to_string(count) + " " + what + ", it needs " +
         (least == most     ? std::to_string(least)
          : most == INT_MAX ? std::to_string(least) + " or more"
                            : std::to_string(least) + " to " + std::to_string(most));
}

Fault operandFault(onnx::NodeOp node, const OpSchema &schema, const OperandKinds &kinds) {
  auto inputs = node.getInputs();
  if (Fault fault = countFault("inputs", inputs.size(), schema.min_input(), schema.max_input())) return fault;
  if (Fault fault = countFault("outputs", node.getNumResults(), schema.min_output(), schema.max_output())) return fault;
  llvm::StringMap<std::pair<std::string, size_t>> bound; // type parameter -> type, the input that has it
  for (auto [i, input] : llvm::enumerate(inputs)) {
    const OpSchema::FormalParameter &formal = schema.inputs()[std::min(i, schema.inputs().size() - 1)];
    if (kinds.isSequence(input)) continue;
    if (input.getDefiningOp<onnx::NoneOp>()) {
      if (formal.GetOption() == OpSchema::Optional) continue;
      return "needs " + inputName(i, formal);
    }
    std::string type = onnxName(input.getType(), kinds.narrow(input));
    if (type.empty()) continue;
    // PyTorch writes bfloat16 into opsets that do not have it yet where they have float16.
    bool allowed = llvm::any_of(formal.GetTypes(), [&](const std::string *t) {
      return *t == type || (type == "tensor(bfloat16)" && *t == "tensor(float16)");
    });
    if (!allowed) return inputName(i, formal) + " is a " + type + ", which the operator does not take there";
    if (!formal.GetIsHomogeneous() || !schema.typeConstraintMap().count(formal.GetTypeStr())) continue;
    auto [at, isNew] = bound.try_emplace(formal.GetTypeStr(), std::pair(type, i));
    if (!isNew && at->second.first != type)
      return inputName(i, formal) + " is a " + type + ", and its input " + std::to_string(at->second.second) + " a " +
             at->second.first + ": they must be the same";
  }
  return std::nullopt;
}

// Against one operand's part of a ShapeDemand. `sizes`: what letters stand for, by then.
bool fits(ArrayRef<int64_t> shape, StringRef pattern, std::map<char, int64_t> &sizes) {
  SmallVector<StringRef> tokens;
  pattern.split(tokens, ' ', -1, false);
  size_t star = llvm::find(tokens, "*") - tokens.begin();
  bool open = star < tokens.size();
  size_t fixed = tokens.size() - open;
  if (shape.size() < fixed || (!open && shape.size() > fixed)) return false;
  for (size_t t = 0; t < tokens.size(); ++t) {
    char token = tokens[t][0];
    if (token == '*' || token == '.') continue;
    int64_t size = shape[t < star ? t : shape.size() - (tokens.size() - t)];
    if (ShapedType::isDynamic(size)) continue;
    if (isdigit(token)) {
      if (size != token - '0') return false;
      continue;
    }
    if (sizes.try_emplace(token, size).first->second != size) return false;
  }
  return true;
}

Fault shapeFault(onnx::NodeOp node, const OpSchema &schema) {
  const ShapeDemand *demand =
      llvm::find_if(shapeDemands(), [&](const ShapeDemand &d) { return d.op == node.getOpType(); });
  if (demand == shapeDemands().end()) return std::nullopt;
  SmallVector<StringRef> patterns;
  demand->operands.split(patterns, ',');
  std::map<char, int64_t> sizes;
  for (auto [i, input] : llvm::enumerate(node.getInputs())) {
    auto type = dyn_cast<RankedTensorType>(input.getType());
    if (i >= patterns.size() || !type || fits(type.getShape(), patterns[i], sizes)) continue;
    std::string shape;
    for (int64_t size : type.getShape())
      shape += (shape.empty() ? "" : ",") + (ShapedType::isDynamic(size) ? "?" : std::to_string(size));
    return inputName(i, schema.inputs()[std::min(i, schema.inputs().size() - 1)]) + " is of shape [" + shape +
           "], it must be [" + patterns[i].str() + "]" +
           (patterns.size() > 1 ? " of the operands' dimensions [" + demand->operands.str() + "]" : "");
  }
  return std::nullopt;
}

} // namespace

std::optional<size_t> operandOfResult(onnx::NodeOp node, size_t result) {
  const OpSchema *schema = node.getDomain() == "cleave" ? nullptr : schemaFor(node);
  if (!schema || schema->outputs().empty()) return std::nullopt;
  const std::string parameter = schema->outputs()[std::min(result, schema->outputs().size() - 1)].GetTypeStr();
  for (size_t i = 0; i < node.getInputs().size() && !schema->inputs().empty(); ++i) {
    const OpSchema::FormalParameter &formal = schema->inputs()[std::min(i, schema->inputs().size() - 1)];
    if (formal.GetIsHomogeneous() && formal.GetTypeStr() == parameter) return i;
  }
  return std::nullopt;
}

Fault faultOf(onnx::NodeOp node, const OperandKinds &kinds) {
  if (node.getDomain() == "cleave") return std::nullopt; // the importer's own
  const OpSchema *schema = schemaFor(node);
  if (!schema) // an operator that nothing supports: NormalizeNodes says so of all of them at once
    return Rules::all().find(node.getDomain(), node.getOpType()) ? Fault("is no operator of that opset") : std::nullopt;
  if (Fault fault = attributeFault(node, *schema)) return fault;
  if (Fault fault = valueFault(node)) return fault;
  if (Fault fault = operandFault(node, *schema, kinds)) return fault;
  if (Fault fault = shapeFault(node, *schema)) return fault;
  return windowFault(node);
}

} // namespace cleave::normalize
