#include "compiler/import/graph_builder.h"
#include "compiler/elements/element_data.h"
#include "compiler/import/attributes.h"
#include "compiler/import/exporter_metadata.h"
#include "compiler/import/types.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "runtime/base/names/module_scope.h"
#include "llvm/ADT/StringMap.h"
#include <fmt/format.h>
#include <set>

using namespace mlir;

namespace cleave::import_ {
namespace {

class GraphBuilder {
public:
  GraphBuilder(ModuleOp module, const ModelFile &model, const FlatGraph &flat, const ParameterTable &table,
               const InitialWeights &initial, const std::optional<OptimizerState> &optimizer, TensorStore &store)
      : module(module), context(*module.getContext()), builder(&context), model(model), flat(flat), table(table),
        initial(initial), optimizer(optimizer), store(store), graph(flat) {}

  Status build() {
    collectTypes(model.proto.graph());
    builder.setInsertionPointToEnd(module.getBody());
    std::vector<std::vector<std::string>> keys(table.parameters.size());
    for (const StateEntry &entry : table.state.entries)
      if (entry.source == StateEntry::Source::Parameter && entry.key != table.parameters[entry.parameter].name)
        keys[entry.parameter].push_back(entry.key);
    for (size_t i = 0; i < table.parameters.size(); ++i)
      if (table.parameters[i].role != Role::Constant) addParam(i, keys[i]);
    CLEAVE_RETURN_IF_ERROR(addFunction());
    return Status::ok();
  }

private:
  // --- symbols -----------------------------------------------------------------------------------------------------
  Location named(const std::string &name) { return NameLoc::get(builder.getStringAttr(name)); }
  // The node's name, and within the module's where the exporter tells it.
  Location locationOf(const FlatNode &node) {
    std::string module = statedModule(*node.node);
    if (module.empty()) module = names::moduleOf(node.name);
    return module.empty() ? named(node.name) : NameLoc::get(builder.getStringAttr(node.name), named(module));
  }
  ArrayAttr strings(const std::vector<std::string> &values) {
    llvm::SmallVector<Attribute> attributes;
    for (const std::string &value : values) attributes.push_back(builder.getStringAttr(value));
    return builder.getArrayAttr(attributes);
  }

  DictionaryAttr placeOf(const StoredRun &run) {
    llvm::SmallVector<NamedAttribute> place = {
        builder.getNamedAttr("path", builder.getStringAttr(run.path)),
        builder.getNamedAttr("offset", builder.getI64IntegerAttr(run.offset)),
        builder.getNamedAttr("length", builder.getI64IntegerAttr(run.length)),
        builder.getNamedAttr("type", TypeAttr::get(elementTypeOf(&context, run.type)))};
    if (run.isTransposed) place.push_back(builder.getNamedAttr("transposed", builder.getUnitAttr()));
    return builder.getDictionaryAttr(place);
  }

  ArrayAttr placesOf(const std::vector<StoredRun> &runs) {
    llvm::SmallVector<Attribute> places;
    for (const StoredRun &run : runs) places.push_back(placeOf(run));
    return builder.getArrayAttr(places);
  }

  void addParam(size_t at, const std::vector<std::string> &keys) {
    const Parameter &parameter = table.parameters[at];
    std::vector<std::string> nodes;
    auto addNode = [&](size_t node) {
      if (nodes.empty() || nodes.back() != flat.nodes[node].name) nodes.push_back(flat.nodes[node].name);
    };
    for (const Use &use : parameter.uses) {
      addNode(use.node);
      if (flat.nodes[use.node].node->op_type() == "DequantizeLinear") addNode(graph.applying(use).node);
    }
    const StoredTensor &tensor = parameter.tensor;
    RankedTensorType type = storageType(context, tensor);
    OperationState state(named(parameter.name), onnx::ParamOp::getOperationName());
    auto set = [&](llvm::StringRef name, Attribute value) { state.addAttribute(name, value); };
    set("sym_name", builder.getStringAttr(parameter.symbol()));
    set("type", TypeAttr::get(type));
    set("role", builder.getStringAttr(parameter.role == Role::RunningStatistic ? "running_statistic" : "parameter"));
    set("trainable", builder.getBoolAttr(parameter.trainable));
    if (auto places = initial.places.find(at); places != initial.places.end()) {
      set("init", builder.getDictionaryAttr(builder.getNamedAttr("sources", placesOf(places->second))));
    } else if (tensor.inFile) {
      set("path", builder.getStringAttr(tensor.path));
      set("offset", builder.getI64IntegerAttr(tensor.offset));
      set("length", builder.getI64IntegerAttr(tensor.length));
      set("file_type", TypeAttr::get(type.getElementType()));
    }
    if (optimizer) {
      llvm::SmallVector<NamedAttribute> kinds;
      for (const auto &[kind, places] : optimizer->kinds)
        if (auto own = places.find(at); own != places.end())
          kinds.push_back(builder.getNamedAttr(kind, placesOf(own->second)));
      state.attributes.append(onnx::optimizerStateAttr.named(&context, builder.getDictionaryAttr(kinds)));
    }
    if (!parameter.aliases.empty()) set("aliases", strings(parameter.aliases));
    if (!nodes.empty()) set("used_by", builder.getStringAttr(nodes.front()));
    Operation *param = builder.create(state);
    if (!parameter.transposedAliases.empty()) onnx::transposedAliasesAttr.set(param, parameter.transposedAliases);
    if (!parameter.foldedFrom.empty()) onnx::foldedFromAttr.set(param, parameter.foldedFrom);
    if (!keys.empty()) onnx::stateKeysAttr.set(param, keys);
    if (!nodes.empty()) onnx::nodesAttr.set(param, nodes);
    onnx::whyAttr.set(param, parameter.why);
    onnx::kindAttr.set(param, parameter.kind());
  }

  // --- @model ------------------------------------------------------------------------------------------------------
  void collectTypes(const ::onnx::GraphProto &graph) {
    for (auto *values : {&graph.value_info(), &graph.output()})
      for (const ::onnx::ValueInfoProto &value : *values)
        if (Type type = valueType(context, value.type())) types[value.name()] = type;
  }
  Type typeOf(const std::string &value) {
    auto found = types.find(value);
    return found == types.end() ? unknownType(context) : found->second;
  }

  Status addFunction() {
    const ::onnx::GraphProto &graph = model.proto.graph();
    func::FuncOp function =
        func::FuncOp::create(builder, builder.getUnknownLoc(), "model", builder.getFunctionType({}, {}));
    Block *body = function.addEntryBlock();
    builder.setInsertionPointToEnd(body);
    scopes.emplace_back();
    llvm::SmallVector<DictionaryAttr> argumentAttributes, resultAttributes;
    for (const ::onnx::ValueInfoProto &input : graph.input()) {
      if (table.byValue.count(input.name()) || isInitializer(input.name())) continue;
      Type type = valueType(context, input.type());
      if (!type)
        return inputError(fmt::format("{}: input '{}' is not a tensor of a supported type", model.path, input.name()));
      CLEAVE_RETURN_IF_ERROR(define(input.name(), body->addArgument(type, named(input.name())), "graph"));
      argumentAttributes.push_back(argumentAttribute(input));
    }
    addPrologue();
    for (size_t i = 0; i < flat.nodes.size(); ++i)
      if (!table.dissolved[i]) CLEAVE_RETURN_IF_ERROR(addNode(flat.nodes[i], i));
    llvm::SmallVector<Value> results;
    for (const ::onnx::ValueInfoProto &output : graph.output()) {
      Value value = lookup(output.name());
      if (!value)
        return inputError(fmt::format("{}: nothing produces the graph output '{}'", model.path, output.name()));
      results.push_back(value);
      resultAttributes.push_back(builder.getDictionaryAttr(onnx::nameAttr.named(builder.getContext(), output.name())));
    }
    if (results.empty()) return inputError(model.path + ": the graph has no output");
    func::ReturnOp::create(builder, function.getLoc(), results);
    function.setFunctionType(builder.getFunctionType(body->getArgumentTypes(), ValueRange(results).getTypes()));
    function.setAllArgAttrs(argumentAttributes);
    function.setAllResultAttrs(resultAttributes);
    return Status::ok();
  }

  bool isInitializer(const std::string &name) {
    if (initializers.empty())
      for (const ::onnx::TensorProto &tensor : model.proto.graph().initializer()) initializers.insert(tensor.name());
    return initializers.count(name) > 0;
  }

  DictionaryAttr argumentAttribute(const ::onnx::ValueInfoProto &input) {
    std::vector<std::string> dims;
    for (const ::onnx::TensorShapeProto::Dimension &dim : input.type().tensor_type().shape().dim()) {
      bool fixed = dim.has_dim_value() && dim.dim_value() >= 0;
      bool isNamed = dim.has_dim_param() && !dim.dim_param().empty();
      dims.push_back(fixed ? "" : isNamed ? dim.dim_param() : fmt::format("{}.{}", input.name(), dims.size()));
    }
    return builder.getDictionaryAttr(
        {onnx::dimsAttr.named(builder.getContext(), dims), onnx::nameAttr.named(builder.getContext(), input.name())});
  }

  // Reads and constants, once each, and the absent input if some node has one.
  void addPrologue() {
    for (const Parameter &parameter : table.parameters) {
      Location location = named(parameter.name);
      RankedTensorType type = tensorType(context, parameter.tensor);
      if (parameter.role == Role::Constant) {
        stored.push_back(
            onnx::ConstantOp::create(builder, location, type, elementsAttr(context, parameter.tensor)).getY());
        continue;
      }
      RankedTensorType inMemory = storageType(context, parameter.tensor);
      Value value = onnx::ReadOp::create(builder, location, inMemory, parameter.symbol()).getValue();
      if (inMemory != type) value = asElements(value, type, parameter.name);
      stored.push_back(value);
    }
    for (const FlatNode &node : flat.nodes)
      if (!none && hasAbsentInput(*node.node))
        none = onnx::NoneOp::create(builder, builder.getUnknownLoc(), builder.getNoneType());
  }
  // The bytes of a parameter as the elements that they hold.
  Value asElements(Value bytes, RankedTensorType type, const std::string &name) {
    NamedAttribute attribute = builder.getNamedAttr("type", TypeAttr::get(type));
    return onnx::NodeOp::create(builder, bytes.getLoc(), TypeRange{type}, ValueRange{bytes}, "Elements", "cleave", 1,
                                name + "/elements", builder.getDictionaryAttr(attribute), 0)
        .getOutputs()[0];
  }
  static bool hasAbsentInput(const ::onnx::NodeProto &node) {
    for (const std::string &input : node.input())
      if (input.empty()) return true;
    for (const ::onnx::AttributeProto &attribute : node.attribute())
      for (const ::onnx::NodeProto &inner : attribute.g().node())
        if (hasAbsentInput(inner)) return true;
    return false;
  }

  // --- nodes -------------------------------------------------------------------------------------------------------
  Status define(const std::string &name, Value value, const std::string &by) {
    if (name.empty()) return Status::ok();
    if (!scopes.back().try_emplace(name, value).second)
      return inputError(fmt::format("{}: '{}' produces the value '{}' a second time", model.path, by, name));
    return Status::ok();
  }
  Value lookup(const std::string &name) {
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope)
      if (auto found = scope->find(name); found != scope->end()) return found->second;
    auto found = table.byValue.find(name);
    return found == table.byValue.end() ? Value() : read(found->second);
  }
  Value read(const Reading &reading) {
    Value value = stored[reading.parameter];
    if (!reading.transposed) return value;
    auto type = cast<RankedTensorType>(value.getType());
    NamedAttribute perm = builder.getNamedAttr("perm", builder.getDenseI64ArrayAttr({1, 0}));
    auto standard = model.opsets.find("");
    return onnx::NodeOp::create(
               builder, value.getLoc(),
               TypeRange{RankedTensorType::get({type.getDimSize(1), type.getDimSize(0)}, type.getElementType())},
               ValueRange{value}, "Transpose", "", standard == model.opsets.end() ? 1 : standard->second,
               table.parameters[reading.parameter].name + "/transpose", builder.getDictionaryAttr(perm), 0)
        .getOutputs()[0];
  }

  std::string where(const FlatNode &node) const {
    return fmt::format("{}: node '{}' ({})", model.path, node.name, node.node->op_type());
  }

  // `index` is the node's place in the flat graph; none for nodes of subgraphs.
  Status addNode(const FlatNode &node, std::optional<size_t> index) {
    const ::onnx::NodeProto &proto = *node.node;
    llvm::SmallVector<Value> inputs;
    for (int operand = 0; operand < proto.input_size(); ++operand) {
      Value value = none;
      if (!proto.input(operand).empty()) {
        auto use = index ? table.byUse.find({*index, operand}) : table.byUse.end();
        value = use != table.byUse.end() ? read(use->second) : lookup(proto.input(operand));
        if (!value)
          return inputError(
              fmt::format("{} reads '{}', which nothing before it produces", where(node), proto.input(operand)));
      }
      inputs.push_back(value);
    }
    if (canonicalDomain(proto.domain()).empty() && proto.op_type() == "Constant" && proto.attribute_size() == 1 &&
        proto.output_size() == 1)
      if (DenseElementsAttr value = constantValue(context, proto.attribute(0)))
        return define(proto.output(0),
                      onnx::ConstantOp::create(builder, locationOf(node), value.getType(), value).getY(), node.name);

    llvm::SmallVector<NamedAttribute> attributes;
    std::vector<const ::onnx::GraphProto *> graphs;
    for (const ::onnx::AttributeProto &attribute : proto.attribute()) {
      if (attribute.has_g()) {
        attributes.push_back(builder.getNamedAttr(attribute.name(), builder.getI64IntegerAttr(graphs.size())));
        graphs.push_back(&attribute.g());
        continue;
      }
      Result<Attribute> value = convertAttribute(context, attribute, store, where(node));
      if (!value) return value.status();
      attributes.push_back(builder.getNamedAttr(attribute.name(), *value));
    }
    auto state = [&](llvm::StringRef name, int64_t value) {
      llvm::erase_if(attributes, [&](NamedAttribute own) { return own.getName() == name; });
      attributes.push_back(builder.getNamedAttr(name, builder.getI64IntegerAttr(value)));
    };
    if (index && table.trainingNorms.contains(*index)) state("training_mode", 1);
    if (auto row = index ? table.paddingRows.find(*index) : table.paddingRows.end(); row != table.paddingRows.end())
      state(onnx::paddingRowName, row->second);
    llvm::SmallVector<Type> resultTypes;
    for (const std::string &output : proto.output()) resultTypes.push_back(typeOf(output));
    auto op = onnx::NodeOp::create(builder, locationOf(node), resultTypes, inputs, proto.op_type(),
                                   canonicalDomain(proto.domain()), flat.version(node), node.name,
                                   builder.getDictionaryAttr(attributes), graphs.size());
    for (size_t i = 0; i < graphs.size(); ++i)
      CLEAVE_RETURN_IF_ERROR(addSubgraph(node, *graphs[i], op.getSubgraphs()[i]));
    for (int i = 0; i < proto.output_size(); ++i)
      CLEAVE_RETURN_IF_ERROR(define(proto.output(i), op.getOutputs()[i], node.name));
    return Status::ok();
  }

  Status addSubgraph(const FlatNode &owner, const ::onnx::GraphProto &graph, Region &region) {
    OpBuilder::InsertionGuard guard(builder);
    Block *body = builder.createBlock(&region);
    scopes.emplace_back();
    collectTypes(graph);
    for (const ::onnx::ValueInfoProto &input : graph.input()) {
      Type type = valueType(context, input.type());
      CLEAVE_RETURN_IF_ERROR(
          define(input.name(), body->addArgument(type ? type : unknownType(context), named(input.name())), owner.name));
    }
    for (const ::onnx::TensorProto &tensor : graph.initializer()) {
      Result<StoredTensor> value = store.locate(tensor);
      if (!value) return value.status();
      if (!value->bytes)
        return inputError(fmt::format("{}: tensor '{}' of its subgraph is in '{}', which is missing", where(owner),
                                      tensor.name(), value->path));
      auto constant = onnx::ConstantOp::create(builder, named(tensor.name()), tensorType(context, *value),
                                               elementsAttr(context, *value));
      CLEAVE_RETURN_IF_ERROR(define(tensor.name(), constant.getY(), owner.name));
    }
    for (const ::onnx::NodeProto &node : graph.node()) {
      std::string name = !node.name().empty() || node.output_size() == 0 ? node.name() : node.output(0);
      auto own = flat.opsetsInside.find(&node);
      const Opsets *opsets = own == flat.opsetsInside.end() ? owner.opsets : own->second;
      CLEAVE_RETURN_IF_ERROR(addNode({&node, opsets, owner.name + "/" + name}, std::nullopt));
    }
    llvm::SmallVector<Value> results;
    for (const ::onnx::ValueInfoProto &output : graph.output()) {
      Value value = lookup(output.name());
      if (!value)
        return inputError(fmt::format("{}: nothing produces its subgraph's output '{}'", where(owner), output.name()));
      results.push_back(value);
    }
    onnx::NodeOp::create(builder, named(owner.name), TypeRange{}, results, "yield", "cleave", 1, owner.name + "/yield",
                         builder.getDictionaryAttr({}), 0);
    scopes.pop_back();
    return Status::ok();
  }

  ModuleOp module;
  MLIRContext &context;
  OpBuilder builder;
  const ModelFile &model;
  const FlatGraph &flat;
  const ParameterTable &table;
  const InitialWeights &initial;
  const std::optional<OptimizerState> &optimizer;
  TensorStore &store;
  const GraphIndex graph;
  std::map<std::string, Type> types;
  std::vector<std::map<std::string, Value>> scopes;
  std::vector<Value> stored; // by parameter: its read or constant
  std::set<std::string> initializers;
  Value none;
};

} // namespace

Status buildModule(ModuleOp module, const ModelFile &model, const FlatGraph &flat, const ParameterTable &table,
                   const InitialWeights &initial, const std::optional<OptimizerState> &optimizer, TensorStore &store) {
  return GraphBuilder(module, model, flat, table, initial, optimizer, store).build();
}

} // namespace cleave::import_
