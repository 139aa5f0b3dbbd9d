#include "compiler/import/exporter_metadata.h"
#include "compiler/import/weights/state_dict.h"
#include "test/unit/import/model_builder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave::import_ {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::pair<int64_t, int64_t>> rangesOf(const StateEntry &entry) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const ElementRange &range : entry.ranges) ranges.emplace_back(range.begin, range.count);
  return ranges;
}

std::string underscored(std::string name) {
  std::ranges::replace(name, '.', '_');
  return name;
}

TEST(StateDict, RecurrentWeightsHavePyTorchsGates) {
  // ONNX: i, o, f, c of two directions; hidden 2, input 3
  std::vector<StateEntry> weights = recurrentEntries("LSTM", 1, {2, 8, 3}, "rnn", 1);
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_EQ(weights[0].key, "rnn.weight_ih_l1");
  EXPECT_EQ(weights[1].key, "rnn.weight_ih_l1_reverse");
  EXPECT_THAT(weights[0].shape, ElementsAre(8, 3));
  EXPECT_THAT(rangesOf(weights[1]),
              ElementsAre(std::pair(24, 6), std::pair(36, 6), std::pair(42, 6), std::pair(30, 6)));
  std::vector<StateEntry> biases = recurrentEntries("GRU", 3, {1, 12}, "", 0);
  ASSERT_EQ(biases.size(), 2u);
  EXPECT_EQ(biases[0].key, "bias_ih_l0");
  EXPECT_EQ(biases[1].key, "bias_hh_l0");
  EXPECT_THAT(biases[1].shape, ElementsAre(6));
  EXPECT_THAT(rangesOf(biases[1]), ElementsAre(std::pair(8, 2), std::pair(6, 2), std::pair(10, 2)));
  EXPECT_TRUE(recurrentEntries("LSTM", 1, {1, 6, 3}, "rnn", 0).empty()); // not four gates
}

// A literal that was merged with a parameter of the same number is told from it by the operation's arguments.
TEST(StateDict, OperationsAreReadWithTheirArguments) {
  ::onnx::GraphProto graph;
  auto say = [](auto *owner, const std::string &key, const std::string &value) {
    auto *entry = owner->add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  };
  say(&graph, "pkg.torch.export.ExportedProgram.graph_signature", "\np_scale: PARAMETER target='scale'");
  graph.add_input()->set_name("add");
  for (const char *arguments :
       {"(%add, [32, 4], %p_scale, 1e-05), kwargs = {})", "(%add, 0.5), kwargs = {})", "(%gone, 0.5), kwargs = {})"}) {
    ::onnx::NodeProto *node = graph.add_node();
    node->set_op_type("Mul");
    for (const char *input : {"add", "scale"}) node->add_input(input);
    say(node, "pkg.torch.onnx.fx_node",
        std::string("%n : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = ") + arguments);
  }
  FlatGraph flat;
  for (const ::onnx::NodeProto &node : graph.node()) flat.nodes.push_back({&node, nullptr, "n"});
  const GraphIndex index(flat);
  const ExporterMetadata metadata(graph, index);
  EXPECT_EQ(metadata.operation(0).target, "aten.mul.Tensor");
  EXPECT_THAT(metadata.operation(0).arguments, ElementsAre("add", "[32, 4]", "p_scale", "1e-05"));
  EXPECT_EQ(metadata.keyOf({0, 1}), "scale");
  EXPECT_FALSE(metadata.isLiteral({0, 1}));
  EXPECT_TRUE(metadata.isLiteral({1, 1}));
  EXPECT_FALSE(metadata.isLiteral({2, 1})); // what is gone may be the parameter, moved
}

// Two Linear layers whose biases the exporter merged: nodes say whose they are, and each trains by its own name.
TEST(StateDict, MergedBiasesHaveTheirOwnNames) {
  ModelBuilder model;
  model.input("x", {-1, 4});
  model.weight("val_1", {4, 4});
  model.weight("val_2", {4, 4});
  model.filled("a.bias", {4}, 0);
  for (const char *name : {"a.weight", "a.bias", "b.weight", "b.bias", "gone.weight"})
    model.sign(fmt::format("p_{}: PARAMETER target='{}'", underscored(name), name));
  model.computed("val_1", "['a.weight']");
  model.computed("val_2", "['b.weight']");
  auto linear = [&](const std::string &layer, const std::string &in, const std::string &weight,
                    const std::string &out) {
    for (::onnx::NodeProto *node :
         {model.node("MatMul", {in, weight}, {out + "_m"}), model.node("Add", {out + "_m", "a.bias"}, {out})}) {
      auto *entry = node->add_metadata_props();
      entry->set_key("pkg.torch.onnx.fx_node");
      entry->set_value(
          fmt::format("%l : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%x, "
                      "%p_{0}_weight, %p_{0}_bias), kwargs = {{}})",
                      layer));
    }
  };
  linear("a", "x", "val_1", "h");
  linear("b", "h", "val_2", "y");
  model.output("y");
  const std::string text = model.import({{"b.*"}}).text;
  EXPECT_THAT(text, HasSubstr("onnx.param @b.bias"));
  EXPECT_THAT(text, HasSubstr("onnx.state_keys = [\"b.weight\"]"));
  EXPECT_THAT(text, HasSubstr("which the file has nothing of: 'gone.weight'"));
}

} // namespace
} // namespace cleave::import_
