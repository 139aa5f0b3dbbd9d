#include "compiler/import/weights/state_dict.h"
#include "compiler/import/weights/stated_reads.h"
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

TEST(StateDict, OperationsAreReadWithTheirArguments) {
  ::onnx::NodeProto node;
  auto *entry = node.add_metadata_props();
  entry->set_key("pkg.torch.onnx.fx_node");
  entry->set_value(
      "%n : [num_users=1] = call_function[target=torch.ops.aten.layer_norm.default](args = (%add, [32, 4], "
      "%p_ln_weight, %p_ln_bias, 1e-05), kwargs = {})");
  StatedOperation operation = statedOperation(node);
  EXPECT_EQ(operation.target, "aten.layer_norm.default");
  EXPECT_THAT(operation.arguments, ElementsAre("add", "[32, 4]", "p_ln_weight", "p_ln_bias", "1e-05"));
}

// Two Linear layers whose biases the exporter merged: nodes say whose they are, and each trains by its own name.
TEST(StateDict, MergedBiasesHaveTheirOwnNames) {
  ModelBuilder model;
  model.input("x", {-1, 4});
  model.weight("val_1", {4, 4});
  model.weight("val_2", {4, 4});
  model.filled("a.bias", {4}, 0);
  for (const char *name : {"a.weight", "a.bias", "b.weight", "b.bias", "gone.weight"})
    model.sign(fmt::format("p_{0}: PARAMETER target='{0}'", name));
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
                      "%p_{0}.weight, %p_{0}.bias), kwargs = {{}})",
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
