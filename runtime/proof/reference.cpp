#include "runtime/proof/reference.h"
#include "runtime/proof/machine.h"
#include <fmt/format.h>
#include <utility>

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

// "accumulate" runs once, on leaves that stand for what it adds to: each microbatch then does the same.
void Reference::accumulate(int64_t microbatches) {
  const std::map<std::string, Tensor> before = state;
  std::map<std::string, Store::Original> added; // by symbol: the leaf
  for (const plan::GraphFunction &function : graph.functions())
    for (int32_t number : function.nodes()) {
      const plan::GraphNode &own = graph.nodes(number);
      if (function.name() != "accumulate" || own.op() != "Write") continue;
      auto found = state.find(own.symbol());
      if (found == state.end()) throw Unproved{fmt::format("the plan has no tensor '{}'", own.symbol())};
      const std::vector<int64_t> &shape = found->second.shape;
      Store::Original &leaf = added[own.symbol()];
      for (size_t d = 0; d < shape.size(); ++d)
        leaf.variables.push_back(store.variable(Variable::Dimension, static_cast<int64_t>(d), shape[d]));
      leaf.value = store.standIn("what is in " + own.symbol(), leaf.variables);
      found->second.value = leaf.value;
    }
  (void)run("accumulate", 0);
  const std::map<std::string, Tensor> after = std::exchange(state, before);
  for (auto entry = added.begin(); entry != added.end();) {
    auto &[symbol, leaf] = *entry;
    const std::optional<Term> each = store.addedTo(leaf.value, after.at(symbol).value);
    if (each)
      state.at(symbol).value =
          store.sum(state.at(symbol).value, store.gathered(store.microbatch(0), 0, microbatches, *each));
    entry = each ? added.erase(entry) : std::next(entry);
  }
  for (int64_t m = 0; m < microbatches && !added.empty(); ++m) {
    std::map<Definition, Store::Original> now;
    for (auto &[symbol, leaf] : added)
      now[store.term(leaf.value).definition] = {leaf.variables, state.at(symbol).value};
    for (auto &[symbol, leaf] : added) {
      const Term then = store.ofMicrobatch(after.at(symbol).value, store.microbatch(0), store.microbatch(m));
      state.at(symbol).value = store.withOriginals(then, [&](Definition leaf_) { return now.at(leaf_); });
    }
  }
}

std::map<std::string, Tensor> Reference::step(int64_t microbatches) {
  if (microbatches > 1) accumulate(microbatches - 1);
  return run("final", microbatches - 1);
}

} // namespace cleave::proof
