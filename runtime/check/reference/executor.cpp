#include "runtime/check/reference/executor.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/graph_form.h"
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace cleave::runtime {
namespace {

bool isInner(const std::string &op) { return op == "Read" || op == "Write" || op == "Constant"; }

std::string describe(const TensorType &type) {
  return fmt::format("{}[{}]", plan::DType_Name(type.dtype), fmt::join(type.shape, ","));
}

} // namespace

TensorType ReferenceExecutor::typeOf(int32_t value) const {
  const plan::GraphValue &proto = graph->values(value);
  TensorType type{proto.dtype(), {proto.shape().begin(), proto.shape().end()}};
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
    if (!attribute.tensor().empty()) { // a splat is one element
      const plan::GraphValue &declared = graph->values(proto.results(0));
      HostTensor value = HostTensor::zeros(declared.dtype(), {declared.shape().begin(), declared.shape().end()});
      const std::string &bytes = attribute.tensor();
      size_t element = static_cast<size_t>(byteSize(value.dtype));
      if (bytes.size() != value.data.size() && bytes.size() != element)
        return inputError(fmt::format("reference graph: constant '{}' has {} bytes, its type {} needs {}", proto.name(),
                                      bytes.size(), describe(value.type()), value.data.size()));
      if (bytes.size() == value.data.size())
        std::memcpy(value.data.data(), bytes.data(), bytes.size());
      else
        for (size_t at = 0; at < value.data.size(); at += element) std::memcpy(&value.data[at], bytes.data(), element);
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
  // From the last node to the first: the first use met is the last of the run. Outputs are kept.
  std::set<int32_t> seen;
  for (const plan::GraphOutput &output : proto.outputs()) seen.insert(output.value());
  for (auto node = function.nodes.rbegin(); node != function.nodes.rend(); ++node) {
    for (int32_t result : node->proto->results())
      if (seen.insert(result).second) node->lastUses.push_back(result); // never used
    for (int32_t operand : node->proto->operands())
      if (seen.insert(operand).second) node->lastUses.push_back(operand);
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
      return HostTensor::ofReals(type.dtype, type.shape,
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

Result<NamedTensors> ReferenceExecutor::run(const std::string &name, const NamedTensors &inputs, const HostValues &host,
                                            int64_t microbatch) {
  auto found = functions.find(name);
  if (found == functions.end()) return inputError(fmt::format("the reference graph has no function '{}'", name));
  const Function &function = found->second;
  std::map<int32_t, HostTensor> made;
  std::map<int32_t, const HostTensor *> values; // `made`, state and constants
  auto hold = [&](int32_t value, HostTensor tensor) { values[value] = &(made[value] = std::move(tensor)); };
  for (const plan::GraphInput &proto : function.proto->inputs()) {
    CLEAVE_ASSIGN_OR_RETURN(HostTensor given, input(proto, inputs, host, microbatch));
    hold(proto.value(), std::move(given));
  }
  NamedTensors written;
  for (const Node &node : function.nodes) {
    const plan::GraphNode &proto = *node.proto;
    if (progress) progress(microbatch, double(&node - function.nodes.data()) / double(function.nodes.size()));
    std::vector<const HostTensor *> operands;
    for (int32_t operand : proto.operands()) operands.push_back(values.at(operand));
    if (proto.op() == "Read") {
      auto tensor = state.find(proto.symbol());
      if (tensor == state.end()) return inputError(fmt::format("parameter '{}' has no value", proto.symbol()));
      const TensorType &type = node.types[0];
      if (tensor->second.shape != type.shape)
        return inputError(fmt::format("parameter '{}' is {}, the graph reads {}", proto.symbol(),
                                      describe(tensor->second.type()), describe(type)));
      if (tensor->second.dtype == type.dtype)
        values[proto.results(0)] = &tensor->second;
      else
        hold(proto.results(0), tensor->second.converted(type.dtype));
    } else if (proto.op() == "Write") {
      written[proto.symbol()] = *operands[0];
    } else if (proto.op() == "Constant") {
      values[proto.results(0)] = &std::get<HostTensor>(node.attributes.at("value"));
    } else {
      auto results = evaluate(proto.op(), operands, node.attributes, node.types, precision);
      if (!results) return runError(fmt::format("node '{}': {}", proto.name(), results.status().message()));
      for (int i = 0; i < proto.results_size(); ++i) hold(proto.results(i), std::move((*results)[i]));
    }
    for (int32_t done : node.lastUses) {
      values.erase(done);
      made.erase(done);
    }
  }
  NamedTensors outputs;
  for (const plan::GraphOutput &output : function.proto->outputs()) outputs[output.name()] = *values.at(output.value());
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
