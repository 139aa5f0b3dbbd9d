// The unsplit step: what "accumulate" leaves after many microbatches.
#include "runtime/check/proof/machine.h"
#include "runtime/check/proof/reference.h"
#include <gtest/gtest.h>

namespace cleave::proof {
namespace {

// accumulate: total = total + x, trail = trail * total, last = last + x; all of them read before one is written
class References : public testing::Test {
protected:
  References() {
    function = graph.add_functions();
    function->set_name("accumulate");
    const int x = value();
    plan::GraphInput *input = function->add_inputs();
    input->set_name("x"), input->set_value(x);
    const int total = read("total"), trail = read("trail"), last = read("last");
    write("total", node("Add", {total, x}));
    write("trail", node("Mul", {trail, total}));
    write("last", node("Add", {last, x}));
    graph.add_functions()->set_name("final");
  }
  int value() {
    plan::GraphValue *made = graph.add_values();
    made->set_dtype(plan::F32), made->add_shape(4);
    return graph.values_size() - 1;
  }
  int node(const std::string &op, const std::vector<int> &operands, const std::string &symbol = "") {
    const int result = op == "Write" ? -1 : value();
    function->add_nodes(graph.nodes_size());
    plan::GraphNode *made = graph.add_nodes();
    made->set_op(op), made->set_symbol(symbol);
    for (int operand : operands) made->add_operands(operand);
    if (result >= 0) made->add_results(result);
    return result;
  }
  int read(const std::string &symbol) { return node("Read", {}, symbol); }
  void write(const std::string &symbol, int operand) { node("Write", {operand}, symbol); }

  Store store;
  plan::Graph graph;
  plan::GraphFunction *function = nullptr;
};

TEST_F(References, aTensorMayReadWhatAnotherOneAccumulates) {
  const std::vector<Index> at = {store.dimension(0, 4)};
  Reference reference(graph, store);
  for (const char *name : {"total", "trail", "last"}) reference.state[name] = {plan::F32, {4}, store.leaf(name, at)};
  (void)reference.step(4);
  Term total = store.leaf("total", at), trail = store.leaf("trail", at), last = store.leaf("last", at);
  for (int64_t m = 0; m < 3; ++m) {
    const Term x = Machine::input(store, "x", m, at);
    trail = store.product({trail, total});
    total = store.sum(total, x);
    last = store.sum(last, x);
  }
  EXPECT_EQ(reference.state.at("total").value, total);
  EXPECT_EQ(reference.state.at("trail").value, trail);
  EXPECT_EQ(reference.state.at("last").value, last);
}

} // namespace
} // namespace cleave::proof
