#include "runtime/plan/graph_form.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/message_faults.h"
#include <fmt/format.h>
#include <set>

namespace cleave::runtime {
namespace {

Status refuse(const std::string &what) { return inputError("graph: " + what); }

Status checkFunction(const plan::Graph &graph, const plan::GraphFunction &function) {
  std::set<int32_t> known;
  auto isValue = [&](int32_t value) { return value >= 0 && value < graph.values_size(); };
  for (const plan::GraphInput &input : function.inputs()) {
    if (!isValue(input.value())) return refuse(fmt::format("input '{}' is no value of it", input.name()));
    known.insert(input.value());
  }
  for (int32_t index : function.nodes()) {
    if (index < 0 || index >= graph.nodes_size())
      return refuse(fmt::format("function '{}' names node {}", function.name(), index));
    const plan::GraphNode &node = graph.nodes(index);
    for (int32_t operand : node.operands())
      if (!known.contains(operand))
        return refuse(fmt::format("node '{}' ({}) reads value {}, which nothing before it makes", node.name(),
                                  node.op(), operand));
    known.insert(node.results().begin(), node.results().end());
  }
  for (const plan::GraphOutput &output : function.outputs())
    if (!known.contains(output.value()))
      return refuse(fmt::format("output '{}' of function '{}' is made by nothing", output.name(), function.name()));
  return {};
}

} // namespace

Status checkGraph(const plan::Graph &graph) {
  if (auto message = unknownFieldIn(graph))
    return refuse(fmt::format("a newer cleave wrote it: {} has fields that this runtime does not know", *message));
  for (int i = 0; i < graph.values_size(); ++i) {
    plan::Buffer value;
    value.set_dtype(graph.values(i).dtype());
    *value.mutable_shape() = graph.values(i).shape();
    if (byteSize(value) < 0) return refuse(fmt::format("value {} has no valid type", i));
  }
  for (const plan::GraphNode &node : graph.nodes()) {
    for (const auto *values : {&node.operands(), &node.results()})
      for (int32_t value : *values)
        if (value < 0 || value >= graph.values_size())
          return refuse(
              fmt::format("node '{}' ({}) names value {} of {}", node.name(), node.op(), value, graph.values_size()));
    const bool isWhole = node.op() == "Write" ? node.operands_size() == 1 : node.results_size() >= 1;
    if (!isWhole) return refuse(fmt::format("node '{}' ({}) is not whole", node.name(), node.op()));
  }
  for (const plan::GraphFunction &function : graph.functions()) CLEAVE_RETURN_IF_ERROR(checkFunction(graph, function));
  return {};
}

} // namespace cleave::runtime
