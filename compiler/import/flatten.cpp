#include "compiler/import/flatten.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::import_ {
namespace {

constexpr int deepestCall = 64;

using Names = std::map<std::string, std::string>;

class Flattener {
public:
  Flattener(const ModelFile &model, FlatGraph &flat) : model(model), flat(flat) {
    for (const ::onnx::FunctionProto &function : model.proto.functions())
      functions[key(function.domain(), function.name(), function.overload())] = &function;
  }

  Status graph() {
    flat.scopes.push_back(model.opsets);
    const Opsets *opsets = &flat.scopes.back();
    for (const ::onnx::NodeProto &node : model.proto.graph().node()) CLEAVE_RETURN_IF_ERROR(add(node, opsets, 0));
    return Status::ok();
  }

private:
  static std::string key(const std::string &domain, const std::string &name, const std::string &overload) {
    return canonicalDomain(domain) + "::" + name + "::" + overload;
  }

  std::string nameOf(const ::onnx::NodeProto &node) const {
    if (!node.name().empty()) return node.name();
    for (const std::string &output : node.output())
      if (!output.empty()) return output;
    return fmt::format("{}#{}", node.op_type(), flat.nodes.size());
  }

  Status add(const ::onnx::NodeProto &node, const Opsets *opsets, int depth) {
    auto function = functions.find(key(node.domain(), node.op_type(), node.overload()));
    if (function == functions.end()) {
      flat.nodes.push_back({&node, opsets, nameOf(node)});
      return Status::ok();
    }
    if (depth >= deepestCall)
      return inputError(fmt::format("{}: node '{}': function '{}' calls itself, or calls are nested more than {} deep",
                                    model.path, nameOf(node), node.op_type(), deepestCall));
    return inlineCall(node, *function->second, depth);
  }

  Status inlineCall(const ::onnx::NodeProto &call, const ::onnx::FunctionProto &function, int depth) {
    std::string prefix = nameOf(call) + "/";
    if (call.input_size() > function.input_size() || call.output_size() > function.output_size())
      return inputError(fmt::format("{}: node '{}' has {} inputs and {} outputs; function '{}' has {} and {}",
                                    model.path, nameOf(call), call.input_size(), call.output_size(), function.name(),
                                    function.input_size(), function.output_size()));
    Names names;
    for (int i = 0; i < function.input_size(); ++i)
      names[function.input(i)] = i < call.input_size() ? call.input(i) : "";
    std::vector<std::pair<std::string, std::string>> forwarded; // outputs that are inputs of the function
    for (int i = 0; i < call.output_size(); ++i) {
      if (call.output(i).empty()) continue;
      auto [at, isNew] = names.try_emplace(function.output(i), call.output(i));
      if (!isNew) forwarded.emplace_back(at->second, call.output(i));
    }
    std::map<std::string, const ::onnx::AttributeProto *> attributes;
    for (const ::onnx::AttributeProto &attribute : function.attribute_proto())
      attributes[attribute.name()] = &attribute;
    for (const ::onnx::AttributeProto &attribute : call.attribute()) attributes[attribute.name()] = &attribute;
    flat.scopes.push_back(readOpsets(function.opset_import()));
    const Opsets *opsets = &flat.scopes.back();
    for (const ::onnx::NodeProto &inner : function.node()) {
      inlinedBytes += inner.ByteSizeLong();
      if (flat.owned.size() >= mostInlinedNodes || inlinedBytes > mostInlinedBytes)
        return inputError(fmt::format("{}: node '{}': functions become more than {} nodes or {} MiB of them",
                                      model.path, nameOf(call), mostInlinedNodes, mostInlinedBytes >> 20));
      ::onnx::NodeProto &node = flat.owned.emplace_back(inner);
      rename(node, prefix, names);
      fillAttributes(node, attributes);
      CLEAVE_RETURN_IF_ERROR(add(node, opsets, depth + 1));
    }
    for (const auto &[from, to] : forwarded) {
      ::onnx::NodeProto &node = flat.owned.emplace_back();
      node.set_op_type("Identity");
      node.set_name(prefix + to);
      node.add_input(from);
      node.add_output(to);
      CLEAVE_RETURN_IF_ERROR(add(node, opsets, deepestCall));
    }
    return Status::ok();
  }

  static void rename(::onnx::NodeProto &node, const std::string &prefix, Names &names) {
    auto scoped = [&](const std::string &name) -> std::string {
      if (name.empty()) return name;
      return names.try_emplace(name, prefix + name).first->second;
    };
    std::string name = node.name();
    if (!name.empty()) node.set_name(prefix + name);
    for (std::string &input : *node.mutable_input()) input = scoped(input);
    for (std::string &output : *node.mutable_output()) output = scoped(output);
    for (::onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g()) renameGraph(*attribute.mutable_g(), prefix, names);
  }

  static void renameGraph(::onnx::GraphProto &graph, const std::string &prefix, Names &names) {
    auto scoped = [&](const std::string &name) { return names.try_emplace(name, prefix + name).first->second; };
    for (auto *values : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()})
      for (::onnx::ValueInfoProto &value : *values) value.set_name(scoped(value.name()));
    for (::onnx::TensorProto &tensor : *graph.mutable_initializer()) tensor.set_name(scoped(tensor.name()));
    for (::onnx::NodeProto &node : *graph.mutable_node()) rename(node, prefix, names);
  }

  static void fillAttributes(::onnx::NodeProto &node,
                             const std::map<std::string, const ::onnx::AttributeProto *> &attributes) {
    google::protobuf::RepeatedPtrField<::onnx::AttributeProto> filled;
    for (::onnx::AttributeProto &attribute : *node.mutable_attribute()) {
      if (attribute.has_g())
        for (::onnx::NodeProto &inner : *attribute.mutable_g()->mutable_node()) fillAttributes(inner, attributes);
      if (attribute.ref_attr_name().empty()) {
        *filled.Add() = attribute;
        continue;
      }
      auto given = attributes.find(attribute.ref_attr_name());
      if (given == attributes.end()) continue; // not given at the call: the node's own default holds
      ::onnx::AttributeProto *value = filled.Add();
      *value = *given->second;
      value->set_name(attribute.name());
    }
    node.mutable_attribute()->Swap(&filled);
  }

  const ModelFile &model;
  FlatGraph &flat;
  size_t inlinedBytes = 0;
  std::map<std::string, const ::onnx::FunctionProto *> functions;
};

} // namespace

int64_t FlatGraph::version(const FlatNode &node) const {
  auto found = node.opsets->find(canonicalDomain(node.node->domain()));
  return found == node.opsets->end() ? 0 : found->second;
}

Result<FlatGraph> flattenFunctions(const ModelFile &model) {
  FlatGraph flat;
  CLEAVE_RETURN_IF_ERROR(Flattener(model, flat).graph());
  return flat;
}

} // namespace cleave::import_
