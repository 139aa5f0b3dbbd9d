#include "compiler/import/initializers.h"
#include <fmt/format.h>

namespace cleave::import_ {
namespace {

class Collector {
public:
  Collector(const ModelFile &model, const FlatGraph &flat, TensorStore &store)
      : model(model), flat(flat), store(store) {}

  Result<Initializers> run() {
    all.dissolved.assign(flat.nodes.size(), false);
    for (const ::onnx::TensorProto &tensor : model.proto.graph().initializer())
      CLEAVE_RETURN_IF_ERROR(add(tensor, false));
    for (size_t i = 0; i < flat.nodes.size(); ++i) CLEAVE_RETURN_IF_ERROR(addNode(i));
    for (const ::onnx::ValueInfoProto &output : model.proto.graph().output())
      all.direct.insert(all.resolve(output.name()));
    for (const auto &[value, initial] : all.resolved) all.valuesOf[initial].push_back(value);
    return std::move(all);
  }

private:
  Status add(const ::onnx::TensorProto &tensor, bool fromNode) {
    Result<StoredTensor> stored = store.locate(tensor);
    if (!stored) return stored.status();
    if (!all.byName.emplace(tensor.name(), Initializer{std::move(*stored), fromNode, {}, {}}).second)
      return inputError(fmt::format("{}: two initializers are called '{}'", model.path, tensor.name()));
    all.order.push_back(tensor.name());
    all.resolved[tensor.name()] = tensor.name();
    return Status::ok();
  }

  Status addNode(size_t i) {
    const ::onnx::NodeProto &node = *flat.nodes[i].node;
    const bool standard = canonicalDomain(node.domain()).empty();
    if (standard && node.op_type() == "Constant" && node.attribute_size() == 1 && node.attribute(0).has_t() &&
        node.output_size() == 1) {
      ::onnx::TensorProto tensor = node.attribute(0).t();
      tensor.set_name(node.output(0));
      all.dissolved[i] = true;
      return add(tensor, true);
    }
    if (standard && node.op_type() == "Identity" && node.input_size() == 1 && node.output_size() == 1 &&
        all.resolved.contains(node.input(0))) {
      all.resolved[node.output(0)] = all.resolve(node.input(0));
      all.dissolved[i] = true;
      return Status::ok();
    }
    for (int operand = 0; operand < node.input_size(); ++operand) {
      auto found = all.resolved.find(node.input(operand));
      if (found == all.resolved.end()) continue;
      Initializer &initializer = all.byName.at(found->second);
      initializer.uses.push_back({i, operand});
      if (found->first != found->second) initializer.identity[{i, operand}] = found->first;
    }
    for (const ::onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_g()) addCaptures(attribute.g());
    return Status::ok();
  }

  // Initializers that a subgraph reads from around it.
  void addCaptures(const ::onnx::GraphProto &graph) {
    for (const ::onnx::NodeProto &node : graph.node()) {
      for (const std::string &input : node.input())
        if (all.resolved.contains(input)) all.direct.insert(all.resolve(input));
      for (const ::onnx::AttributeProto &attribute : node.attribute())
        if (attribute.has_g()) addCaptures(attribute.g());
    }
    for (const ::onnx::ValueInfoProto &output : graph.output())
      if (all.resolved.contains(output.name())) all.direct.insert(all.resolve(output.name()));
  }

  const ModelFile &model;
  const FlatGraph &flat;
  TensorStore &store;
  Initializers all;
};

} // namespace

Result<Initializers> Initializers::of(const ModelFile &model, const FlatGraph &flat, TensorStore &store) {
  return Collector(model, flat, store).run();
}

std::string Initializers::resolve(const std::string &value) const {
  auto found = resolved.find(value);
  return found == resolved.end() ? value : found->second;
}

bool Initializers::isMatrix(const std::string &value) const {
  auto found = resolved.find(value);
  if (found == resolved.end()) return false;
  const StoredTensor &tensor = byName.at(found->second).tensor;
  return tensor.isFloat() && tensor.shape.size() >= 2 && tensor.elements() > 1;
}

} // namespace cleave::import_
