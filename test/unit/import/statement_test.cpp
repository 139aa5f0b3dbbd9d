// Models that say what their tensors are (module_statement.h), and doubts of those that do not (role_rules.h).
#include "dialects/onnx/Onnx.h"
#include "test/unit/import/model_builder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave::import_ {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> doubtsOf(const Imported &seen) {
  std::vector<std::string> doubts;
  EXPECT_TRUE(seen.module) << seen.error;
  for (auto doubt : onnx::doubtsAttr.of(seen.op()).getAsRange<mlir::DictionaryAttr>())
    doubts.push_back(doubt.getAs<mlir::StringAttr>("text").str());
  return doubts;
}

std::vector<std::string> trained(const Imported &seen) {
  std::vector<std::string> names;
  EXPECT_TRUE(seen.module) << seen.error;
  for (auto op : seen.op().getOps<onnx::ParamOp>())
    if (op.getTrainable()) names.push_back(op.getSymName().str());
  return names;
}

// y = (x * scale + mean) @ val_1 @ embed^T: with numbers that rules would take for others.
ModelBuilder stated(const std::string &tensors) {
  ModelBuilder model;
  model.input("x", {-1, 4});
  model.filled("scale", {}, 0.5);
  model.filled("mean", {4}, 0);
  model.weight("val_1", {4, 8});
  model.weight("embed", {4, 8});
  model.node("Mul", {"x", "scale"}, {"a"});
  model.node("Add", {"a", "mean"}, {"b"});
  model.node("MatMul", {"b", "val_1"}, {"c"});
  model.node("Transpose", {"embed"}, {"t"});
  model.node("MatMul", {"c", "t"}, {"d"});
  model.node("Mul", {"d", "scale"}, {"y"});
  model.output("y");
  auto *entry = model.proto.add_metadata_props();
  entry->set_key("cleave.module");
  entry->set_value("{\"version\": 1, \"exporter\": \"a test\", \"tensors\": [" + tensors + "]}");
  return model;
}
std::string tensor(const std::string &name, const std::string &shape, const std::string &held, bool requiresGrad = true,
                   const std::string &more = "") {
  return "{\"name\": \"" + name +
         "\", \"kind\": \"parameter\", \"requires_grad\": " + (requiresGrad ? "true" : "false") +
         ", \"shape\": " + shape + ", \"held\": [" + held + "]" + more + "}";
}
std::string held(const std::string &initializer, const std::string &form) {
  return "{\"initializer\": \"" + initializer + "\", \"form\": \"" + form + "\"}";
}

TEST(Statement, DecidesEveryRole) {
  const std::string rest = tensor("fc.weight", "[8, 4]", held("val_1", "transposed")) + "," +
                           tensor("frozen", "[4, 8]", held("embed", "as_is"), false);
  EXPECT_THAT(trained(stated(tensor("scale", "[]", held("scale", "as_is")) + "," + rest).import()),
              ElementsAre("scale", "fc.weight"));
  // A number that no tensor holds is a literal, whatever it is called.
  const Imported literal = stated(rest).import();
  EXPECT_THAT(trained(literal), ElementsAre("fc.weight"));
  EXPECT_THAT(doubtsOf(literal), IsEmpty());
  EXPECT_THAT(literal.text, HasSubstr("read from the module's statement"));
  // The recipe may say otherwise.
  ImportOptions options;
  options.frozen = {"fc.*"};
  options.roles = {{"frozen", recipe::TensorRole::Parameter}};
  EXPECT_THAT(trained(stated(rest).import(options)), ElementsAre("frozen"));
}

TEST(Statement, TiesAreThoseOfTheModule) {
  const std::string root = tensor("embed.weight", "[4, 8]", held("embed", "as_is"));
  const std::string tied =
      tensor("head.weight", "[4, 8]", held("val_1", "as_is"), true, ", \"tied_to\": \"embed.weight\"");
  const Imported seen = stated(root + "," + tied).import();
  EXPECT_THAT(trained(seen), ElementsAre("embed.weight"));
  EXPECT_THAT(seen.text, HasSubstr("aliases = [\"embed\"]"));
}

TEST(Statement, ThatDoesNotFitIsRefused) {
  EXPECT_THAT(stated(tensor("w", "[3, 3]", held("embed", "as_is"))).import().error,
              HasSubstr("'w' [3, 3] is said to be in 'embed', and it is [4, 8]"));
  EXPECT_THAT(stated(tensor("w", "[4, 8]", held("gone", "as_is"))).import().error, HasSubstr("no such initializer"));
  EXPECT_THAT(stated("nonsense").import().error, HasSubstr("cleave.module"));
}

TEST(Statement, DoubtsABatchThatTheFileIsNotFor) {
  ModelBuilder model = stated(tensor("fc.weight", "[8, 4]", held("val_1", "transposed")));
  std::string &value = *model.proto.mutable_metadata_props(0)->mutable_value();
  value.insert(value.size() - 1, ", \"batches\": [[1, 7, 1], [10, null, 2]]");
  auto doubts = [&](int64_t batch) {
    ImportOptions options;
    options.batches = {batch};
    return doubtsOf(model.import(options));
  };
  for (int64_t batch : {1, 7, 10, 12}) EXPECT_THAT(doubts(batch), IsEmpty()) << batch;
  for (int64_t batch : {9, 11}) EXPECT_THAT(doubts(batch), ElementsAre(HasSubstr("a batch size for which"))) << batch;
  EXPECT_THAT(doubts(8), ElementsAre(HasSubstr("export with cleave.export(..., batch=8)")));
}

// A Gemm of a Linear and a Conv keep the weight's name, unless it was computed; a MatMul's is transposed and never has it.
TEST(Doubts, OfComputedWeightsInTorchScript) {
  ModelBuilder model;
  model.proto.set_producer_name("pytorch");
  model.input("x", {-1, 4});
  model.weight("onnx::MatMul_9", {4, 4});
  model.weight("0.bias", {4});
  model.weight("onnx::Gemm_14", {4, 4});
  model.weight("1.bias", {4});
  model.weight("2.weight", {4, 4});
  model.weight("2.bias", {4});
  model.node("MatMul", {"x", "onnx::MatMul_9"}, {"a"})->set_name("/0/MatMul");
  model.node("Add", {"a", "0.bias"}, {"b"})->set_name("/0/Add");
  for (auto [name, input, weight, output] : {std::array{"1", "b", "onnx::Gemm_14", "c"}, std::array{"2", "c", "2.weight", "y"}}) {
    ::onnx::NodeProto *node = model.node("Gemm", {input, weight, std::string(name) + ".bias"}, {output});
    node->set_name("/" + std::string(name) + "/Gemm");
    ::onnx::AttributeProto *transposed = node->add_attribute();
    transposed->set_name("transB");
    transposed->set_type(::onnx::AttributeProto::INT);
    transposed->set_i(1);
  }
  model.output("y");
  EXPECT_THAT(doubtsOf(model.import()), ElementsAre(HasSubstr("'onnx::Gemm_14': parameters that train as what")));
  ImportOptions options;
  options.roles = {{"onnx::Gemm_14", recipe::TensorRole::Parameter}};
  EXPECT_THAT(doubtsOf(model.import(options)), IsEmpty());
}

// TorchScript tells no buffers from parameters: what meets the data alone, and what has no name, is doubtful.
TEST(Doubts, OfTorchScript) {
  ModelBuilder model;
  model.proto.set_producer_name("pytorch");
  model.input("x", {-1, 4});
  model.weight("mean", {4});
  model.weight("fc.weight", {4, 4});
  model.weight("gamma", {4});
  model.weight("onnx::Mul_7", {4});
  model.node("Sub", {"x", "mean"}, {"a"})->set_name("/Sub");
  model.node("MatMul", {"a", "fc.weight"}, {"b"})->set_name("/fc/MatMul");
  model.node("Mul", {"b", "gamma"}, {"c"})->set_name("/Mul");
  model.node("Mul", {"c", "onnx::Mul_7"}, {"y"})->set_name("/Mul_1");
  model.output("y");
  const Imported seen = model.import();
  EXPECT_THAT(doubtsOf(seen), ElementsAre(HasSubstr("'mean'"), HasSubstr("'onnx::Mul_7'")));
  EXPECT_THAT(trained(seen), ElementsAre("fc.weight", "gamma", "onnx::Mul_7"));
  ImportOptions options;
  options.roles = {{"mean", recipe::TensorRole::Buffer}, {"onnx::Mul_7", recipe::TensorRole::Constant}};
  EXPECT_THAT(doubtsOf(model.import(options)), IsEmpty());
  EXPECT_THAT(trained(model.import(options)), ElementsAre("fc.weight", "gamma"));
}

// A vector that is added to a product is a bias, also one of several in a row; a table may be a buffer (ALiBi's).
TEST(Doubts, OfTablesThatAreAddedToProducts) {
  ModelBuilder model;
  model.proto.set_producer_name("pytorch");
  model.input("x", {-1, 4});
  model.weight("attn.in_proj_weight", {4, 4});
  model.weight("attn.in_proj_bias", {8});
  model.weight("attn.slopes", {4, 4});
  model.integers("start", {1}, {0});
  model.integers("end", {1}, {4});
  model.node("Slice", {"attn.in_proj_bias", "start", "end"}, {"bias"});
  model.node("MatMul", {"x", "attn.in_proj_weight"}, {"a"})->set_name("/attn/MatMul");
  model.node("Add", {"a", "bias"}, {"b"});
  model.node("MatMul", {"b", "x"}, {"c"});
  model.node("Add", {"c", "attn.slopes"}, {"y"});
  model.output("y");
  EXPECT_THAT(doubtsOf(model.import()), ElementsAre(HasSubstr("'attn.slopes': parameters or buffers?")));
}

// What PyTorch's exporter lists and computed away.
TEST(Doubts, OfLostParameters) {
  ModelBuilder model;
  model.input("x", {-1, 4});
  model.weight("w", {4, 4});
  model.filled("mul", {1}, 0.3f);
  for (const char *name : {"w", "p"}) model.sign(std::string("p_") + name + ": PARAMETER target='" + name + "'");
  model.computed("mul", "['p', 'reciprocal']");
  model.node("MatMul", {"x", "w"}, {"a"});
  model.node("Pow", {"a", "mul"}, {"y"});
  model.output("y");
  EXPECT_THAT(doubtsOf(model.import()), ElementsAre(HasSubstr("'p': parameters that do not train")));
  ImportOptions options;
  options.frozen = {"p"};
  EXPECT_THAT(doubtsOf(model.import(options)), IsEmpty());
  model.weight("p", {1});
  model.node("Mul", {"a", "p"}, {"z"});
  model.output("z");
  EXPECT_THAT(doubtsOf(model.import()), ElementsAre(HasSubstr("'p': parameters that lose a part of their gradient")));
}

} // namespace
} // namespace cleave::import_
