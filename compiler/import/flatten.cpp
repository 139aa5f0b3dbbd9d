#include "compiler/import/flatten.h"
#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace cleave::import_ {
namespace {

constexpr int deepestCall = 64;

using Names = std::map<std::string, std::string>;

class Flattener {
public:
  Flattener(const ModelFile &model, FlatGraph &flat) : model(model), flat(flat) {
    for (const ::onnx::FunctionProto &function : model.proto.functions())
      functions[key(function.domain(), function.name(), function.overload())] = &function;
    if (!functions.empty()) collectValues(model.proto.graph());
  }

  Status graph() {
    flat.scopes.push_back(model.opsets);
    const Opsets *opsets = &flat.scopes.back();
    for (const ::onnx::NodeProto &node : model.proto.graph().node())
      CLEAVE_RETURN_IF_ERROR(add(node, opsets, 0, flat.nodes));
    for (FlatNode &node : flat.nodes) {
      if (!hasCallsInside(*node.node)) continue;
      ::onnx::NodeProto &owner = flat.owned.emplace_back(*node.node);
      CLEAVE_RETURN_IF_ERROR(flattenSubgraphs(owner, node.opsets, 0));
      node.node = &owner;
    }
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

  const ::onnx::FunctionProto *functionOf(const ::onnx::NodeProto &node) const {
    auto found = functions.find(key(node.domain(), node.op_type(), node.overload()));
    return found == functions.end() ? nullptr : found->second;
  }
  bool hasCallsInside(const ::onnx::NodeProto &node) const {
    for (const ::onnx::AttributeProto &attribute : node.attribute())
      for (const ::onnx::NodeProto &inner : attribute.g().node())
        if (functionOf(inner) || hasCallsInside(inner)) return true;
    return false;
  }

  Status add(const ::onnx::NodeProto &node, const Opsets *opsets, int depth, std::vector<FlatNode> &to) {
    const ::onnx::FunctionProto *function = functionOf(node);
    if (!function) {
      to.push_back({&node, opsets, nameOf(node)});
      return Status::ok();
    }
    if (depth >= deepestCall)
      return inputError(fmt::format("{}: node '{}': function '{}' calls itself, or calls are nested more than {} deep",
                                    model.path, nameOf(node), node.op_type(), deepestCall));
    return inlineCall(node, *function, depth, to);
  }

  Status flattenSubgraphs(::onnx::NodeProto &owner, const Opsets *opsets, int depth) {
    for (::onnx::AttributeProto &attribute : *owner.mutable_attribute()) {
      if (!attribute.has_g()) continue;
      std::vector<FlatNode> nodes;
      google::protobuf::RepeatedPtrField<::onnx::NodeProto> calling;
      attribute.mutable_g()->mutable_node()->Swap(&calling);
      for (const ::onnx::NodeProto &node : calling) CLEAVE_RETURN_IF_ERROR(add(node, opsets, depth, nodes));
      for (const FlatNode &node : nodes) {
        ::onnx::NodeProto &made = *attribute.mutable_g()->add_node();
        made = *node.node;
        flat.opsetsInside[&made] = node.opsets;
        if (hasCallsInside(made)) CLEAVE_RETURN_IF_ERROR(flattenSubgraphs(made, node.opsets, depth + 1));
      }
    }
    return Status::ok();
  }

  void collectValues(const ::onnx::GraphProto &graph) {
    for (const ::onnx::ValueInfoProto &input : graph.input()) values.insert(input.name());
    for (const ::onnx::TensorProto &tensor : graph.initializer()) values.insert(tensor.name());
    for (const ::onnx::NodeProto &node : graph.node()) {
      values.insert(node.output().begin(), node.output().end());
      for (const ::onnx::AttributeProto &attribute : node.attribute()) collectValues(attribute.g());
    }
  }

  // What stands in front of the function's names: nodes of one name may call it, and a value may already have the name
  // that one of the function would get.
  std::string prefixOf(const ::onnx::NodeProto &call, const ::onnx::FunctionProto &function) {
    const std::string name = nameOf(call);
    int &calls = callsOf[name];
    while (true) {
      std::string prefix = ++calls == 1 ? name + "/" : fmt::format("{}#{}/", name, calls);
      auto isTaken = [&](const std::string &output) { return !output.empty() && values.count(prefix + output); };
      if (std::none_of(function.node().begin(), function.node().end(), [&](const ::onnx::NodeProto &inner) {
            return std::any_of(inner.output().begin(), inner.output().end(), isTaken);
          }))
        return prefix;
    }
  }

  Status inlineCall(const ::onnx::NodeProto &call, const ::onnx::FunctionProto &function, int depth,
                    std::vector<FlatNode> &to) {
    const std::string prefix = prefixOf(call, function);
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
      values.insert(node.output().begin(), node.output().end());
      fillAttributes(node, attributes);
      CLEAVE_RETURN_IF_ERROR(add(node, opsets, depth + 1, to));
    }
    for (const auto &[from, output] : forwarded) {
      ::onnx::NodeProto &node = flat.owned.emplace_back();
      node.set_op_type("Identity");
      node.set_name(prefix + output);
      node.add_input(from);
      node.add_output(output);
      CLEAVE_RETURN_IF_ERROR(add(node, opsets, deepestCall, to));
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
  std::set<std::string> values;       // of the graph and of the calls so far
  std::map<std::string, int> callsOf; // by the calling nodes' name
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
