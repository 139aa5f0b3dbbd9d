#include "runtime/check/proof/reference.h"
#include "runtime/check/proof/machine.h"
#include <algorithm>
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
    const Term value = input.has_host_scalar() ? Machine::hostScalar(store, input.host_scalar(), microbatch, at)
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
      Tensor &result = values[node->results(0)] = operations.apply(*node, operands, typeOf(node->results(0)), {});
      if (store.hasPadding) result.value = store.settled(result.value); // before they are multiplied out
    }
  }
  node = nullptr;
  for (auto &[symbol, tensor] : written) state[symbol] = tensor;
  std::map<std::string, Tensor> outputs;
  for (const plan::GraphOutput &output : function->outputs()) outputs[output.name()] = values.at(output.value());
  return outputs;
}

// The function runs once, on leaves that stand for what is in the tensors that it writes: each microbatch then does the
// same. A tensor that it only adds to is known after any number of them at once.
void Reference::accumulate(const std::string &name, int64_t microbatches) {
  struct Written {
    Store::Original leaf;     // `value`: before all; where `each` is nothing, now
    Term after;               // the first microbatch, of leaves
    std::optional<Term> each; // is added by a microbatch
  };
  std::map<std::string, Written> written; // by symbol
  std::map<Definition, const Written *> byLeaf;
  const std::map<std::string, Tensor> before = state;
  for (const plan::GraphFunction &function : graph.functions())
    for (int32_t number : function.nodes()) {
      const plan::GraphNode &own = graph.nodes(number);
      if (function.name() != name || own.op() != "Write" || written.count(own.symbol())) continue;
      auto found = state.find(own.symbol());
      if (found == state.end()) throw Unproved{fmt::format("the plan has no tensor '{}'", own.symbol())};
      Written &entry = written[own.symbol()];
      const std::vector<int64_t> &shape = found->second.shape;
      for (size_t d = 0; d < shape.size(); ++d)
        entry.leaf.variables.push_back(store.variable(Variable::Dimension, static_cast<int64_t>(d), shape[d]));
      entry.leaf.value = found->second.value;
      found->second.value = store.standIn("what is in " + own.symbol(), entry.leaf.variables);
      byLeaf[store.term(found->second.value).definition] = &entry;
    }
  const std::map<std::string, Tensor> leaves = state;
  (void)run(name, 0);
  for (auto &[symbol, entry] : written) {
    entry.after = state.at(symbol).value;
    entry.each = store.addedTo(leaves.at(symbol).value, entry.after);
  }
  state = before;
  auto added = [&](const Written &entry, int64_t count) {
    const Term all = count == 0 ? store.number(0) : store.gathered(store.microbatch(0), 0, count, *entry.each);
    return store.sum(entry.leaf.value, all);
  };
  const bool isAllAdded = std::ranges::all_of(written, [](const auto &pair) { return pair.second.each.has_value(); });
  for (int64_t m = 0; m < microbatches && !isAllAdded; ++m) {
    std::map<std::string, Term> now;
    for (const auto &[symbol, entry] : written) {
      if (entry.each) continue;
      const Term then = store.ofMicrobatch(entry.after, store.microbatch(0), store.microbatch(m));
      now[symbol] = store.withOriginals(then, [&](Definition leaf) {
        const Written &of = *byLeaf.at(leaf);
        return Store::Original{of.leaf.variables, of.each ? added(of, m) : of.leaf.value};
      });
    }
    for (const auto &[symbol, value] : now) written.at(symbol).leaf.value = value;
  }
  for (const auto &[symbol, entry] : written)
    state.at(symbol).value = entry.each ? added(entry, microbatches) : entry.leaf.value;
}

std::map<std::string, Tensor> Reference::step(int64_t microbatches) {
  if (has("count")) accumulate("count", microbatches);
  if (microbatches > 1) accumulate("accumulate", microbatches - 1);
  return run("final", microbatches - 1);
}

} // namespace cleave::proof
