#include "compiler/normalize/function_bodies.h"
#include "compiler/import/types.h"
#include "compiler/normalize/narrow_types.h"
#include "compiler/normalize/node.h"
#include "onnx/defs/function.h"
#include "onnx/defs/schema.h"
#include "runtime/base/elements.h"
#include <algorithm>
#include <span>

using namespace mlir;
namespace cleave::normalize {

DenseElementsAttr tensorAttribute(OpBuilder &builder, const ::onnx::TensorProto &proto) {
  Type element = import_::elementType(*builder.getContext(), proto.data_type());
  if (!element) return {};
  std::vector<int64_t> shape(proto.dims().begin(), proto.dims().end());
  auto type = RankedTensorType::get(shape, element);
  if (isNarrow(element)) {
    const int64_t bits = import_::elementBits(proto.data_type()), count = type.getNumElements();
    std::string bytes = proto.raw_data();
    if (!proto.has_raw_data())
      for (int32_t packed : proto.int32_data()) bytes.push_back(char(packed));
    if (int64_t(bytes.size()) != (count * bits + 7) / 8) return {};
    if (bits < 8) bytes = import_::unpacked(bytes.data(), bits, count);
    return DenseElementsAttr::getFromRawBuffer(type, ArrayRef<char>(bytes.data(), bytes.size()));
  }
  runtime::HostTensor tensor = runtime::HostTensor::zeros(dtypeOf(element), shape);
  if (proto.has_raw_data()) {
    if (proto.raw_data().size() != tensor.data.size()) return {};
    std::ranges::copy(std::as_bytes(std::span(proto.raw_data())), tensor.data.begin());
    return toAttribute(tensor, type);
  }
  std::vector<double> values;
  if (proto.float_data_size())
    values.assign(proto.float_data().begin(), proto.float_data().end());
  else if (proto.double_data_size())
    values.assign(proto.double_data().begin(), proto.double_data().end());
  else if (proto.int64_data_size())
    values.assign(proto.int64_data().begin(), proto.int64_data().end());
  else if (proto.int32_data_size()) {
    bool half = proto.data_type() == ::onnx::TensorProto::FLOAT16,
         brain = proto.data_type() == ::onnx::TensorProto::BFLOAT16;
    for (int32_t bits : proto.int32_data())
      values.push_back(half    ? runtime::fp16ToFloat(uint16_t(bits))
                       : brain ? runtime::bf16ToFloat(uint16_t(bits))
                               : bits);
  }
  if (int64_t(values.size()) != tensor.elements()) return {};
  tensor.setReals(values.data());
  return toAttribute(tensor, type);
}

namespace {

const ::onnx::OpSchema *schemaOf(const std::string &domain, const std::string &op, int64_t version) {
  return ::onnx::OpSchemaRegistry::Schema(op, static_cast<int>(version), domain);
}

// --- MLIR to protobuf: what a context-dependent body is built from

void setTensor(::onnx::TensorProto &proto, ElementsAttr value) {
  runtime::HostTensor tensor = toHostTensor(value);
  for (int64_t size : tensor.shape) proto.add_dims(size);
  proto.set_raw_data(tensor.data.data(), tensor.data.size());
  static const std::map<plan::DType, int> types = {{plan::F32, 1},  {plan::U8, 2},   {plan::I8, 3},   {plan::U16, 4},
                                                   {plan::I16, 5},  {plan::I32, 6},  {plan::I64, 7},  {plan::BOOL, 9},
                                                   {plan::F16, 10}, {plan::F64, 11}, {plan::U32, 12}, {plan::U64, 13},
                                                   {plan::BF16, 16}};
  proto.set_data_type(types.at(tensor.dtype));
}

int onnxType(Type element) {
  if (isNarrow(element)) return onnxNumberOf(element);
  ::onnx::TensorProto proto;
  setTensor(proto, DenseElementsAttr::get(RankedTensorType::get({}, element),
                                          isa<FloatType>(element) ? Attribute(FloatAttr::get(element, 0))
                                                                  : Attribute(IntegerAttr::get(element, 0))));
  return proto.data_type();
}

::onnx::NodeProto protoOf(onnx::NodeOp node) {
  using Proto = ::onnx::AttributeProto;
  ::onnx::NodeProto proto;
  proto.set_op_type(node.getOpType().str());
  proto.set_domain(node.getDomain().str());
  proto.set_name(node.getNodeName().str());
  for (auto [i, input] : llvm::enumerate(node.getInputs()))
    proto.add_input(input.getDefiningOp<onnx::NoneOp>() ? "" : "in" + std::to_string(i));
  for (size_t i = 0; i < node.getNumResults(); ++i) proto.add_output("out" + std::to_string(i));
  for (NamedAttribute named : node.getOnnxAttributes()) {
    Proto &attribute = *proto.add_attribute();
    attribute.set_name(named.getName().str());
    llvm::TypeSwitch<Attribute>(named.getValue())
        .Case([&](IntegerAttr a) {
          attribute.set_type(Proto::INT);
          attribute.set_i(a.getValue().getSExtValue());
        })
        .Case([&](FloatAttr a) {
          attribute.set_type(Proto::FLOAT);
          attribute.set_f(static_cast<float>(a.getValueAsDouble()));
        })
        .Case([&](StringAttr a) {
          attribute.set_type(Proto::STRING);
          attribute.set_s(a.str());
        })
        .Case([&](DenseI64ArrayAttr a) {
          attribute.set_type(Proto::INTS);
          for (int64_t value : a.asArrayRef()) attribute.add_ints(value);
        })
        .Case([&](DenseF32ArrayAttr a) {
          attribute.set_type(Proto::FLOATS);
          for (float value : a.asArrayRef()) attribute.add_floats(value);
        })
        .Case([&](ElementsAttr a) {
          attribute.set_type(Proto::TENSOR);
          setTensor(*attribute.mutable_t(), a);
        });
  }
  return proto;
}

std::vector<::onnx::TypeProto> typesOf(onnx::NodeOp node, function_ref<Type(Value)> narrow) {
  std::vector<::onnx::TypeProto> types;
  for (Value input : node.getInputs()) {
    ::onnx::TypeProto &type = types.emplace_back();
    auto ranked = dyn_cast<RankedTensorType>(input.getType());
    if (!ranked) continue;
    auto &tensor = *type.mutable_tensor_type();
    tensor.set_elem_type(onnxType(narrow(input) ? narrow(input) : ranked.getElementType()));
    tensor.mutable_shape();
    for (int64_t size : ranked.getShape()) tensor.mutable_shape()->add_dim()->set_dim_value(size);
  }
  return types;
}

// --- protobuf to MLIR: the body's nodes

Attribute attributeOf(OpBuilder &builder, const ::onnx::AttributeProto &proto) {
  switch (proto.type()) {
  case ::onnx::AttributeProto::INT:
    return builder.getI64IntegerAttr(proto.i());
  case ::onnx::AttributeProto::FLOAT:
    return builder.getF32FloatAttr(proto.f());
  case ::onnx::AttributeProto::STRING:
    return builder.getStringAttr(proto.s());
  case ::onnx::AttributeProto::INTS: {
    std::vector<int64_t> values(proto.ints().begin(), proto.ints().end());
    return builder.getDenseI64ArrayAttr(values);
  }
  case ::onnx::AttributeProto::FLOATS: {
    std::vector<float> values(proto.floats().begin(), proto.floats().end());
    return builder.getDenseF32ArrayAttr(values);
  }
  case ::onnx::AttributeProto::TENSOR:
    return tensorAttribute(builder, proto.t());
  default:
    return {};
  }
}

// Makes the nodes of a body.
class BodyBuilder {
public:
  BodyBuilder(onnx::NodeOp node, const ::onnx::OpSchema &schema, const ::onnx::FunctionProto &body, OpBuilder &builder)
      : node(node), schema(schema), builder(builder), versions{{node.getDomain().str(), node.getVersion()}} {
    // Versions that the body does not tell: its own domain has the node's, ONNX's operators have the model's.
    if (auto opset = onnx::opsetAttr.of(node->getParentOfType<ModuleOp>())) versions.try_emplace("", *opset);
    for (const auto &import : body.opset_import()) versions[import.domain()] = import.version();
    scopes.emplace_back();
  }

  void define(const std::string &name, Value value) { scopes.back()[name] = value; }
  Value lookup(const std::string &name) { // null: absent
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope)
      if (auto found = scope->find(name); found != scope->end()) return found->second;
    return {};
  }
  Value absent() {
    if (!none) {
      OpBuilder atNode(node);
      none = onnx::NoneOp::create(atNode, node.getLoc(), builder.getNoneType());
    }
    return none;
  }

  void add(const ::onnx::NodeProto &inner) {
    Values operands;
    for (const std::string &name : inner.input()) {
      Value value = name.empty() ? Value() : lookup(name);
      operands.push_back(value ? value : absent());
    }
    SmallVector<Type> types(inner.output_size(), import_::unknownType(*builder.getContext()));
    auto version = versions.find(inner.domain());
    std::vector<const ::onnx::GraphProto *> graphs;
    DictionaryAttr attributes = attributesOf(inner, graphs);
    auto made =
        onnx::NodeOp::create(builder, node.getLoc(), types, operands, builder.getStringAttr(inner.op_type()),
                             builder.getStringAttr(inner.domain() == "ai.onnx" ? "" : inner.domain()),
                             builder.getI64IntegerAttr(version == versions.end() ? node.getVersion() : version->second),
                             builder.getStringAttr(nameOf(inner)), attributes, unsigned(graphs.size()));
    for (auto [region, graph] : llvm::enumerate(graphs)) addGraph(*graph, made.getSubgraphs()[unsigned(region)]);
    for (auto [output, result] : llvm::zip(inner.output(), made.getResults())) define(output, result);
  }

private:
  std::string nameOf(const ::onnx::NodeProto &inner) {
    return node.getNodeName().str() + "/" + (inner.name().empty() ? inner.op_type() : inner.name());
  }

  // Attributes of a body's node; one that refers to the function's takes the calling node's value or its default. A
  // graph is the number of its region.
  DictionaryAttr attributesOf(const ::onnx::NodeProto &inner, std::vector<const ::onnx::GraphProto *> &graphs) {
    SmallVector<NamedAttribute> attributes;
    for (const ::onnx::AttributeProto &proto : inner.attribute()) {
      Attribute value;
      if (proto.ref_attr_name().empty()) {
        if (proto.has_g()) {
          value = builder.getI64IntegerAttr(int64_t(graphs.size()));
          graphs.push_back(&proto.g());
        } else {
          value = attributeOf(builder, proto);
        }
        if (!value) {
          emitError(node.getLoc()) << "ONNX's definition of " << node.getOpType() << " has an attribute '"
                                   << proto.name() << "' of an unsupported kind";
          throw Failure();
        }
      } else {
        value = node.getOnnxAttributes().get(proto.ref_attr_name());
        auto declared = schema.attributes().find(proto.ref_attr_name());
        if (!value && declared != schema.attributes().end())
          value = attributeOf(builder, declared->second.default_value);
        if (!value) continue;
      }
      attributes.push_back(builder.getNamedAttr(proto.name(), value));
    }
    return builder.getDictionaryAttr(attributes);
  }

  void addGraph(const ::onnx::GraphProto &graph, Region &region) {
    OpBuilder::InsertionGuard guard(builder);
    Block *block = builder.createBlock(&region);
    scopes.emplace_back();
    for (const ::onnx::ValueInfoProto &input : graph.input()) {
      Type type = import_::valueType(*builder.getContext(), input.type());
      define(input.name(),
             block->addArgument(type ? type : import_::unknownType(*builder.getContext()), node.getLoc()));
    }
    for (const ::onnx::TensorProto &tensor : graph.initializer())
      if (DenseElementsAttr value = tensorAttribute(builder, tensor))
        define(tensor.name(), onnx::ConstantOp::create(builder, node.getLoc(), value.getType(), value).getY());
    for (const ::onnx::NodeProto &inner : graph.node()) add(inner);
    Values results;
    for (const ::onnx::ValueInfoProto &output : graph.output()) {
      Value value = lookup(output.name());
      results.push_back(value ? value : absent());
    }
    onnx::NodeOp::create(builder, node.getLoc(), TypeRange{}, results, "yield", "cleave", 1,
                         node.getNodeName().str() + "/yield", builder.getDictionaryAttr({}), 0);
    scopes.pop_back();
  }

  onnx::NodeOp node;
  const ::onnx::OpSchema &schema;
  OpBuilder &builder;
  std::map<std::string, int64_t> versions;
  std::vector<std::map<std::string, Value>> scopes;
  Value none;
};

bool bodyOf(onnx::NodeOp node, const ::onnx::OpSchema &schema, function_ref<Type(Value)> narrow,
            ::onnx::FunctionProto &body) {
  int version = static_cast<int>(node.getVersion());
  if (schema.HasFunction()) {
    const ::onnx::FunctionProto *fixed = schema.GetFunction(version);
    if (!fixed) fixed = schema.GetFunction();
    if (fixed) {
      body = *fixed;
      return true;
    }
  }
  if (!schema.HasContextDependentFunction()) return false;
  ::onnx::NodeProto proto = protoOf(node);
  ::onnx::FunctionBodyBuildContextImpl context(proto, typesOf(node, narrow));
  try {
    return schema.BuildContextDependentFunction(context, body, version) ||
           schema.BuildContextDependentFunction(context, body);
  } catch (const std::exception &error) { // what ONNX's library thinks of the node
    errorAt(node) << "ONNX's definition of the operator refuses it: " << error.what();
    throw Failure();
  }
}

} // namespace

bool hasFunctionBody(const std::string &domain, const std::string &op, int64_t version) {
  const ::onnx::OpSchema *schema = schemaOf(domain, op, version);
  return schema && (schema->HasFunction() || schema->HasContextDependentFunction());
}

std::vector<BodyOperator> operatorsOfBody(const std::string &domain, const std::string &op, int64_t version) {
  std::vector<BodyOperator> result;
  const ::onnx::OpSchema *schema = schemaOf(domain, op, version);
  if (!schema || !schema->HasFunction()) return result;
  const ::onnx::FunctionProto *body = schema->GetFunction(static_cast<int>(version));
  if (!body) body = schema->GetFunction();
  if (!body) return result;
  for (const ::onnx::NodeProto &node : body->node()) result.push_back({node.domain(), node.op_type(), version});
  return result;
}

bool expandFunctionBody(onnx::NodeOp node, OpBuilder &builder, function_ref<Type(Value)> narrow) {
  const ::onnx::OpSchema *schema = schemaOf(node.getDomain().str(), node.getOpType().str(), node.getVersion());
  ::onnx::FunctionProto body;
  if (!schema || !bodyOf(node, *schema, narrow, body)) return false;
  BodyBuilder made(node, *schema, body, builder);
  for (int i = 0; i < body.input_size(); ++i)
    made.define(body.input(i), unsigned(i) < node.getInputs().size() ? node.getInputs()[i] : made.absent());
  for (const ::onnx::NodeProto &inner : body.node()) made.add(inner);
  for (unsigned i = 0; i < node.getNumResults() && i < unsigned(body.output_size()); ++i)
    if (Value value = made.lookup(body.output(int(i)))) node.getResult(i).replaceAllUsesWith(value);
  node.erase();
  return true;
}

} // namespace cleave::normalize
