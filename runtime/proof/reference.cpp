#include "runtime/proof/reference.h"
#include "runtime/proof/machine.h"
#include <fmt/format.h>

namespace cleave::proof {

bool Reference::has(const std::string &function) const {
  for (const plan::GraphFunction &own : graph.functions())
    if (own.name() == function) return true;
  return false;
}

std::map<std::string, Tensor> Reference::run(const std::string &name, int64_t microbatch) {
  const plan::GraphFunction *function = nullptr;
  for (const plan::GraphFunction &own : graph.functions())
    if (own.name() == name) function = &own;
  if (!function) throw Unproved{fmt::format("the reference graph has no function '{}'", name)};
  auto typeOf = [&](int32_t value) {
    const plan::GraphValue &known = graph.values(value);
    return TensorType{known.dtype(), {known.shape().begin(), known.shape().end()}};
  };
  std::map<int32_t, Tensor> values;
  for (const plan::GraphInput &input : function->inputs()) {
    const TensorType type = typeOf(input.value());
    const std::vector<Index> at = operations.dimensions(type.shape);
    const Term value = input.has_host_scalar() ? Machine::hostScalar(store, input.host_scalar().kind(),
                                                                     input.host_scalar().base(), microbatch, at)
                                               : Machine::input(store, input.name(), microbatch, at);
    values[input.value()] = {type.dtype, type.shape, value};
  }
  std::map<std::string, Tensor> written;
  for (int32_t number : function->nodes()) {
    node = &graph.nodes(number);
    std::vector<Tensor> operands;
    for (int32_t operand : node->operands()) operands.push_back(values.at(operand));
    if (node->op() == "Read") {
      auto found = state.find(node->symbol());
      if (found == state.end()) throw Unproved{fmt::format("the plan has no tensor '{}'", node->symbol())};
      values[node->results(0)] = found->second;
    } else if (node->op() == "Write") {
      written[node->symbol()] = operands.at(0);
    } else {
      if (node->results_size() != 1) throw Unproved{"an operator of several results"};
      values[node->results(0)] = operations.apply(*node, operands, typeOf(node->results(0)), {});
    }
  }
  node = nullptr;
  for (auto &[symbol, tensor] : written) state[symbol] = tensor;
  std::map<std::string, Tensor> outputs;
  for (const plan::GraphOutput &output : function->outputs()) outputs[output.name()] = values.at(output.value());
  return outputs;
}

std::map<std::string, Tensor> Reference::step(int64_t microbatches) {
  for (int64_t m = 0; m + 1 < microbatches; ++m) (void)run("accumulate", m);
  return run("final", microbatches - 1);
}

} // namespace cleave::proof
