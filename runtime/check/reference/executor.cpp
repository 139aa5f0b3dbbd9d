#include "runtime/check/reference/executor.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/graph_form.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace cleave::runtime {
namespace {

bool isInner(const std::string &op) { return op == "Read" || op == "Write" || op == "Constant"; }

TensorType typeOf(const plan::GraphValue &value) {
  return {value.dtype(), {value.shape().begin(), value.shape().end()}};
}

// A constant of one element that stands for all.
bool isSplat(const plan::Graph &graph, const plan::GraphNode &node) {
  auto value = node.attributes().find("value");
  if (node.op() != "Constant" || value == node.attributes().end()) return false;
  const TensorType type = typeOf(graph.values(node.results(0)));
  return elementCount(type.shape) != 1 && value->second.tensor().size() == static_cast<size_t>(byteSize(type.dtype));
}

std::string describe(const TensorType &type) {
  return fmt::format("{}[{}]", plan::DType_Name(type.dtype), fmt::join(type.shape, ","));
}

} // namespace

TensorType ReferenceExecutor::typeOf(int32_t value) const {
  TensorType type = runtime::typeOf(graph->values(value));
  type.dtype = heldAs(type.dtype, precision);
  return type;
}

Result<ReferenceExecutor> ReferenceExecutor::create(plan::Graph source, Precision precision) {
  ReferenceExecutor executor;
  executor.graph = std::make_shared<const plan::Graph>(std::move(source));
  executor.precision = precision;
  const plan::Graph &graph = *executor.graph;
  if (Status form = checkGraph(graph); !form) return inputError("reference " + form.message());
  std::set<std::string> unknown;
  for (const plan::GraphNode &node : graph.nodes()) {
    if (!isInner(node.op()) && !canEvaluate(node.op())) unknown.insert(node.op());
  }
  if (!unknown.empty())
    return inputError(fmt::format("the reference evaluator does not know: {}", fmt::join(unknown, ", ")));
  for (const plan::GraphFunction &function : graph.functions()) CLEAVE_RETURN_IF_ERROR(executor.prepare(function));
  return executor;
}

Status ReferenceExecutor::prepareNode(const plan::GraphNode &proto, Node &node) const {
  node.proto = &proto;
  for (int32_t result : proto.results()) node.types.push_back(typeOf(result));
  for (const auto &[name, attribute] : proto.attributes()) {
    if (!attribute.tensor().empty()) {
      const TensorType type = runtime::typeOf(graph->values(proto.results(0)));
      HostTensor value = HostTensor::unset(type.dtype, isSplat(*graph, proto) ? Ints{} : type.shape);
      const std::string &bytes = attribute.tensor();
      if (bytes.size() != value.data.size())
        return inputError(fmt::format("reference graph: constant '{}' has {} bytes, its type {} needs {}", proto.name(),
                                      bytes.size(), describe(type), value.data.size()));
      std::memcpy(value.data.data(), bytes.data(), bytes.size());
      node.attributes[name] = value.dtype == node.types[0].dtype ? std::move(value) : value.converted(plan::F64);
    } else if (attribute.floats_size() > 0) {
      node.attributes[name] = attribute.floats(0);
    } else if (!attribute.text().empty()) {
      node.attributes[name] = attribute.text();
    } else {
      node.attributes[name] = Ints(attribute.ints().begin(), attribute.ints().end());
    }
  }
  return {};
}

Status ReferenceExecutor::prepare(const plan::GraphFunction &proto) {
  Function function;
  function.proto = &proto;
  for (int32_t index : proto.nodes()) {
    CLEAVE_RETURN_IF_ERROR(prepareNode(graph->nodes(index), function.nodes.emplace_back()));
  }
  for (size_t n = 0; n < function.nodes.size(); ++n)
    if (const plan::GraphNode &node = *function.nodes[n].proto; node.op() == "Broadcast" || isSplat(*graph, node))
      function.repeated[node.results(0)] = n;
  // From the last node to the first: the first use met is the last of the run. Outputs are kept. Who reads a repeated
  // value reads its operands.
  std::set<int32_t> seen;
  auto see = [&](auto &self, int32_t value, Node *last) -> void {
    if (auto repeated = function.repeated.find(value); repeated != function.repeated.end())
      for (int32_t operand : function.nodes[repeated->second].proto->operands()) self(self, operand, last);
    else if (seen.insert(value).second && last)
      last->lastUses.push_back(value);
  };
  for (const plan::GraphOutput &output : proto.outputs()) see(see, output.value(), nullptr);
  for (auto node = function.nodes.rbegin(); node != function.nodes.rend(); ++node) {
    if (function.repeated.contains(node->proto->results_size() ? node->proto->results(0) : -1)) continue;
    for (int32_t result : node->proto->results()) see(see, result, &*node); // never used
    for (int32_t operand : node->proto->operands()) see(see, operand, &*node);
  }
  functions[proto.name()] = std::move(function);
  return {};
}

std::map<std::string, TensorType> ReferenceExecutor::stateTypes() const {
  std::map<std::string, TensorType> types;
  for (const plan::GraphNode &node : graph->nodes()) {
    if (node.op() == "Read") types[node.symbol()] = typeOf(node.results(0));
    if (node.op() == "Write") types[node.symbol()] = typeOf(node.operands(0));
  }
  return types;
}

Result<HostTensor> ReferenceExecutor::input(const plan::GraphInput &proto, const NamedTensors &inputs,
                                            const HostValues &host, int64_t microbatch) const {
  TensorType type = typeOf(proto.value());
  if (proto.has_host_scalar()) {
    const plan::HostScalar &scalar = proto.host_scalar();
    switch (scalar.kind()) {
    case plan::HostScalar::LEARNING_RATE:
      return HostTensor::ofReals(type.dtype, type.shape, {host.learningRate});
    case plan::HostScalar::ONE_MINUS_POWER:
      return HostTensor::ofReals(
          type.dtype, type.shape,
          {1 - std::pow(scalar.base(), static_cast<double>(host.step - host.skipped - scalar.since()))});
    case plan::HostScalar::STEP:
      return HostTensor::ofIntegers(type.dtype, type.shape,
                                    {static_cast<int64_t>(host.seed), host.step + (microbatch << 32)});
    default:
      return inputError(fmt::format("reference graph: unknown host scalar {}", int(scalar.kind())));
    }
  }
  auto found = inputs.find(proto.name());
  if (found == inputs.end()) return inputError(fmt::format("input '{}' is not given", proto.name()));
  if (found->second.shape != type.shape)
    return inputError(fmt::format("input '{}' is {}, the model takes {}", proto.name(), describe(found->second.type()),
                                  describe(type)));
  return found->second.dtype == type.dtype ? found->second : found->second.converted(type.dtype);
}

// What the nodes of a function have made so far, and what is not theirs: state and constants.
class ReferenceExecutor::Values {
public:
  Values(const Function &function, Precision precision) : function(function), precision(precision) {}

  void hold(int32_t value, HostTensor tensor) { values[value] = &(made[value] = std::move(tensor)); }
  void refer(int32_t value, const HostTensor &tensor) { values[value] = &tensor; }
  void drop(int32_t value) {
    values.erase(value);
    made.erase(value);
  }
  bool isRepeated(int32_t value) const { return function.repeated.contains(value); }

  // A value; one that repeats others is made in `room`.
  Result<const HostTensor *> at(int32_t value, std::deque<HostTensor> &room) const {
    auto repeated = function.repeated.find(value);
    if (repeated == function.repeated.end()) return values.at(value);
    CLEAVE_ASSIGN_OR_RETURN(auto results, evaluated(function.nodes[repeated->second], room));
    return &room.emplace_back(std::move(results[0]));
  }
  Result<std::vector<HostTensor>> evaluated(const Node &node, std::deque<HostTensor> &room) const {
    std::vector<const HostTensor *> operands;
    for (int32_t operand : node.proto->operands()) {
      CLEAVE_ASSIGN_OR_RETURN(const HostTensor *tensor, at(operand, room));
      operands.push_back(tensor);
    }
    auto results = evaluate(node.proto->op(), operands, node.attributes, node.types, precision);
    if (!results) return runError(fmt::format("node '{}': {}", node.proto->name(), results.status().message()));
    return results;
  }
  // The value itself where nothing reads it any more, else a copy.
  Result<HostTensor> take(int32_t value, bool isLast) {
    if (auto own = made.find(value); isLast && own != made.end()) return std::move(own->second);
    std::deque<HostTensor> room;
    CLEAVE_ASSIGN_OR_RETURN(const HostTensor *tensor, at(value, room));
    return *tensor;
  }

private:
  const Function &function;
  const Precision precision;
  std::map<int32_t, HostTensor> made;
  std::map<int32_t, const HostTensor *> values;
};

Result<NamedTensors> ReferenceExecutor::run(const std::string &name, const NamedTensors &inputs, const HostValues &host,
                                            int64_t microbatch) {
  auto found = functions.find(name);
  if (found == functions.end()) return inputError(fmt::format("the reference graph has no function '{}'", name));
  const Function &function = found->second;
  Values values(function, precision);
  for (const plan::GraphInput &proto : function.proto->inputs()) {
    CLEAVE_ASSIGN_OR_RETURN(HostTensor given, input(proto, inputs, host, microbatch));
    values.hold(proto.value(), std::move(given));
  }
  NamedTensors written;
  for (const Node &node : function.nodes) {
    const plan::GraphNode &proto = *node.proto;
    if (progress) progress(microbatch, double(&node - function.nodes.data()) / double(function.nodes.size()));
    if (proto.op() == "Read") {
      auto tensor = state.find(proto.symbol());
      if (tensor == state.end()) return inputError(fmt::format("parameter '{}' has no value", proto.symbol()));
      const TensorType &type = node.types[0];
      if (tensor->second.shape != type.shape)
        return inputError(fmt::format("parameter '{}' is {}, the graph reads {}", proto.symbol(),
                                      describe(tensor->second.type()), describe(type)));
      if (tensor->second.dtype == type.dtype)
        values.refer(proto.results(0), tensor->second);
      else
        values.hold(proto.results(0), tensor->second.converted(type.dtype));
    } else if (proto.op() == "Write") {
      const bool isLast = std::ranges::count(node.lastUses, proto.operands(0)) > 0;
      CLEAVE_ASSIGN_OR_RETURN(written[proto.symbol()], values.take(proto.operands(0), isLast));
    } else if (values.isRepeated(proto.results(0))) {
      continue;
    } else if (proto.op() == "Constant") {
      values.refer(proto.results(0), std::get<HostTensor>(node.attributes.at("value")));
    } else {
      std::deque<HostTensor> room;
      CLEAVE_ASSIGN_OR_RETURN(auto results, values.evaluated(node, room));
      for (int i = 0; i < proto.results_size(); ++i)
        values.hold(proto.results(i), std::move(results[static_cast<size_t>(i)]));
    }
    for (int32_t done : node.lastUses) values.drop(done);
  }
  NamedTensors outputs;
  for (const plan::GraphOutput &output : function.proto->outputs()) {
    CLEAVE_ASSIGN_OR_RETURN(outputs[output.name()], values.take(output.value(), /*isLast=*/false));
  }
  for (auto &[symbol, tensor] : written) state[symbol] = std::move(tensor);
  return outputs;
}

Result<StepOutcome> ReferenceExecutor::step(const std::vector<NamedTensors> &microbatches, const HostValues &host) {
  if (microbatches.empty()) return inputError("a step needs at least one microbatch");
  for (size_t i = 0; i < microbatches.size() && functions.contains("count"); ++i) {
    CLEAVE_ASSIGN_OR_RETURN(auto done, run("count", microbatches[i], host, static_cast<int64_t>(i)));
  }
  for (size_t i = 0; i + 1 < microbatches.size(); ++i) {
    CLEAVE_ASSIGN_OR_RETURN(auto done, run("accumulate", microbatches[i], host, static_cast<int64_t>(i)));
  }
  CLEAVE_ASSIGN_OR_RETURN(auto outputs,
                          run("final", microbatches.back(), host, static_cast<int64_t>(microbatches.size()) - 1));
  StepOutcome outcome{outputs.at("loss").reals().at(0), outputs.at("grad_norm").reals().at(0), {}};
  if (auto skipped = outputs.find("skipped"); skipped != outputs.end()) outcome.skipped = skipped->second.reals().at(0);
  return outcome;
}

} // namespace cleave::runtime
