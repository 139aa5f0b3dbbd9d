#include "dialects/onnx/Onnx.h"
#include "test/unit/import/model_builder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave::import_ {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> params(const Imported &seen) {
  std::vector<std::string> names;
  EXPECT_TRUE(seen.module) << seen.error;
  if (seen.module)
    for (auto op : seen.op().getOps<onnx::ParamOp>()) names.push_back(op.getSymName().str());
  return names;
}

// x -> MatMul w1 -> Add b -> MatMul w2 -> Add b: an exporter has merged two biases.
void twoLayers(ModelBuilder &model, const char *second, bool zero, const char *bias = "b") {
  model.input("x", {-1, 4});
  model.weight("w1", {4, 4});
  if (std::string(second) != "w1") model.weight(second, {4, 4});
  zero ? model.filled(bias, {4}, 0) : model.weight(bias, {4});
  model.node("MatMul", {"x", "w1"}, {"m"});
  model.node("Add", {"m", bias}, {"a"});
  model.node("MatMul", {"a", second}, {"n"});
  model.node("Add", {"n", bias}, {"y"});
  model.output("y");
}

TEST(Ties, MergedFreshBiasesAreDoubtful) {
  ModelBuilder model;
  twoLayers(model, "w2", true);
  Imported seen = model.import();
  EXPECT_THAT(params(seen), ElementsAre("w1", "w2", "b"));
  EXPECT_THAT(seen.text, HasSubstr("'b': read by several layers: one parameter, or several"));
  EXPECT_THAT(params(model.import({{"*"}, recipe::Ties::None})), ElementsAre("w1", "w2", "b", "b#2"));
  for (recipe::Ties ties : {recipe::Ties::None, recipe::Ties::AsExported})
    EXPECT_THAT(model.import({{"*"}, ties}).text, HasSubstr("onnx.doubts = []"));
}

TEST(Ties, SharedLayersStayShared) { // the same weights applied twice, as ALBERT does
  ModelBuilder model;
  twoLayers(model, "w1", true);
  EXPECT_THAT(params(model.import()), ElementsAre("w1", "b"));
  EXPECT_THAT(params(model.import({{"*"}, recipe::Ties::None})), ElementsAre("w1", "w1#2", "b", "b#2"));
}

TEST(Ties, TrainedSharedBiasesStayShared) {
  ModelBuilder model;
  twoLayers(model, "w2", false);
  EXPECT_THAT(params(model.import()), ElementsAre("w1", "w2", "b"));
}

// Layers of a list that began as copies, merged by TorchScript; a layer that runs twice; two layers that are not alike;
// a parameter of the module around the layers, which all of them read.
TEST(Ties, CopiedLayersAreUntied) {
  struct Case {
    const char *name, *first, *second;
    bool areCopies;
  };
  for (const Case &tried :
       {Case{"layers.0.fc.weight", "/layers.0/fc/MatMul", "/layers.1/fc/MatMul", true},
        Case{"onnx::MatMul_12", "/layers.0/fc/MatMul", "/layers.1/fc/MatMul", true},
        Case{"net.0.0.weight", "/net/net.0/net.0.0/MatMul", "/net/net.0/net.0.1/MatMul", true},
        Case{"w", "/layers.0/fc/MatMul", "/layers.1/fc/MatMul", false},
        Case{"encoder.3.w", "/encoder.3/layers.0/fc/MatMul", "/encoder.3/layers.1/fc/MatMul", false},
        Case{"onnx::MatMul_12", "/layers.0/MatMul", "/layers.0_1/MatMul", false},
        Case{"encoder.w", "/encoder/MatMul", "/decoder/MatMul", false}, Case{"w", "mm.0", "mm.1", false}}) {
    ModelBuilder model;
    model.input("x", {-1, 4});
    model.weight(tried.name, {4, 4});
    model.node("MatMul", {"x", tried.name}, {"a"})->set_name(tried.first);
    model.node("MatMul", {"a", tried.name}, {"y"})->set_name(tried.second);
    model.output("y");
    Imported seen = model.import();
    EXPECT_EQ(params(seen).size(), tried.areCopies ? 2u : 1u) << tried.second;
    EXPECT_EQ(seen.text.find("copies of one another") != std::string::npos, tried.areCopies);
    EXPECT_THAT(params(model.import({{"*"}, recipe::Ties::AsExported})), ElementsAre(tried.name));
  }
}

// One normalization behind two layers: the exporter lists its parameters once, and the file has them all. With a second
// one whose parameters are listed, and not in the file, each layer may have its own.
TEST(Ties, ListedParametersTellWhatWasMerged) {
  for (bool isMerged : {false, true}) {
    ModelBuilder model;
    model.input("x", {-1, 4});
    model.weight("a.weight", {4, 4});
    model.weight("b.weight", {4, 4});
    model.filled("norm.weight", {4}, 1);
    model.filled("norm.bias", {4}, 0);
    model.filled("scale", {}, 2);
    for (const char *name : {"a.weight", "b.weight", "norm.weight", "norm.bias", "scale"})
      model.sign(std::string("p: PARAMETER target='") + name + "'");
    if (isMerged)
      for (const char *name : {"other.weight", "other.bias"})
        model.sign(std::string("p: PARAMETER target='") + name + "'");
    model.node("MatMul", {"x", "a.weight"}, {"a"});
    model.node("LayerNormalization", {"a", "norm.weight", "norm.bias"}, {"c"});
    model.node("MatMul", {"x", "b.weight"}, {"b"});
    model.node("LayerNormalization", {"b", "norm.weight", "norm.bias"}, {"d"});
    model.node("Mul", {"c", "scale"}, {"e"});
    model.node("Mul", {"d", "scale"}, {"f"});
    model.node("Add", {"e", "f"}, {"y"});
    model.output("y");
    Imported seen = model.import();
    EXPECT_EQ(params(seen).size(), 5u);
    EXPECT_EQ(seen.text.find("read by several layers") != std::string::npos, isMerged); // a doubt: nodes do not tell
  }
}

// TorchScript's module names tell the same: a module that runs again is called "gate_1".
TEST(Ties, AScaleOfOneModuleIsOneParameter) {
  ModelBuilder model;
  model.input("x", {-1, 4});
  model.filled("gate.scale", {4}, 2);
  model.weight("w", {4, 4});
  model.node("Mul", {"x", "gate.scale"}, {"a"})->set_name("/gate/Mul");
  model.node("MatMul", {"a", "w"}, {"b"});
  model.node("Mul", {"b", "gate.scale"}, {"y"})->set_name("/gate_1/Mul");
  model.output("y");
  Imported seen = model.import();
  EXPECT_THAT(params(seen), ElementsAre("gate.scale", "w"));
  EXPECT_THAT(seen.text, HasSubstr("one module reads it each time"));
}

TEST(Ties, OperandsOfOneNodeAreTwoThings) { // scale and bias of one node, both zero
  ModelBuilder model;
  model.input("x", {-1, 4});
  model.filled("zeros", {4}, 0);
  model.node("LayerNormalization", {"x", "zeros", "zeros"}, {"y"});
  model.output("y");
  EXPECT_THAT(model.import().text, HasSubstr("'zeros': read by several layers"));
  EXPECT_THAT(params(model.import({{"*"}, recipe::Ties::None})), ElementsAre("zeros", "zeros#2"));
}

TEST(Ties, CopiesTakeTheNameOfTheirIdentity) { // TorchScript writes merged initializers as Identity nodes
  ModelBuilder model;
  model.proto.set_producer_name("pytorch");
  model.input("x", {-1, 4});
  model.filled("layers.0.bias", {4}, 0);
  model.node("Identity", {"layers.0.bias"}, {"layers.1.bias"});
  model.weight("w1", {4, 4});
  model.weight("w2", {4, 4});
  model.node("Gemm", {"x", "w1", "layers.0.bias"}, {"a"})->set_name("/layers.0/Gemm");
  model.node("Gemm", {"a", "w2", "layers.1.bias"}, {"y"});
  model.output("y");
  Imported seen = model.import();
  EXPECT_THAT(params(seen), testing::UnorderedElementsAre("w1", "w2", "layers.0.bias", "layers.1.bias"));
  EXPECT_THAT(seen.text, testing::Not(HasSubstr("\"Identity\"")));
}

void embeddingAndHead(ModelBuilder &model, const std::vector<float> &head, std::vector<int64_t> headShape) {
  model.input("ids", {-1}, ::onnx::TensorProto::INT64);
  std::vector<float> table(3 * 2);
  for (size_t i = 0; i < 6; ++i) table[i] = static_cast<float>(i + 1);
  model.weight("wte", {3, 2}, table);
  model.weight("head", headShape, head);
  model.node("Gather", {"wte", "ids"}, {"e"});
  model.node("MatMul", {"e", "head"}, {"y"});
  model.output("y", {-1, 3});
}

TEST(Ties, ATransposedCopyIsTheSameParameter) {
  ModelBuilder model;
  embeddingAndHead(model, {1, 3, 5, 2, 4, 6}, {2, 3});
  Imported seen = model.import();
  EXPECT_THAT(params(seen), ElementsAre("wte"));
  EXPECT_THAT(seen.text, HasSubstr("onnx.transposed_aliases = [\"head\"]"));
  EXPECT_THAT(seen.text, HasSubstr("onnx.node \"Transpose\""));
  EXPECT_THAT(seen.text, HasSubstr("'head' holds the same numbers as 'wte' transposed: one parameter"));
  EXPECT_THAT(params(model.import({{"*"}, recipe::Ties::AsExported})), ElementsAre("wte", "head"));
}

TEST(Ties, OtherNumbersAreOtherParameters) {
  ModelBuilder model;
  embeddingAndHead(model, {1, 3, 5, 2, 4, 7}, {2, 3});
  EXPECT_THAT(params(model.import()), ElementsAre("wte", "head"));
}

TEST(Ties, AnEmbeddingReadThroughATransposeIsTied) {
  ModelBuilder model;
  model.input("ids", {-1}, ::onnx::TensorProto::INT64);
  model.weight("wte", {3, 2});
  model.node("Gather", {"wte", "ids"}, {"e"});
  model.node("Transpose", {"wte"}, {"t"});
  model.node("MatMul", {"e", "t"}, {"y"});
  model.output("y", {-1, 3});
  Imported seen = model.import();
  EXPECT_THAT(params(seen), ElementsAre("wte"));
  EXPECT_THAT(seen.text, HasSubstr("an embedding and its head"));
}

// PyTorch's exporter transposes a weight for each node that reads it, and says from what.
TEST(Ties, CopiesMadeFromOneParameterAreOne) {
  for (bool sameNumbers : {true, false}) {
    ModelBuilder model;
    model.input("x", {-1, 4});
    model.filled("val_1", {4, 4}, 3);
    model.filled("val_2", {4, 4}, sameNumbers ? 3 : 4);
    model.filled("val_3", {4, 4}, 3); // the same numbers, of another parameter
    for (const auto &[copy, origin] : {std::pair("val_1", "fc.weight"), {"val_2", "fc.weight"}, {"val_3", "o.weight"}})
      model.computed(copy, std::string("['") + origin + "']");
    model.node("MatMul", {"x", "val_1"}, {"a"});
    model.node("MatMul", {"a", "val_2"}, {"b"});
    model.node("MatMul", {"b", "val_3"}, {"y"});
    model.output("y");
    Imported seen = model.import();
    if (!sameNumbers) {
      EXPECT_THAT(params(seen), ElementsAre("val_1", "val_2", "val_3"));
      continue;
    }
    EXPECT_THAT(params(seen), ElementsAre("val_1", "val_3"));
    EXPECT_THAT(seen.text, HasSubstr("'val_2' was made from 'fc.weight': one parameter with 'val_1'"));
    EXPECT_THAT(params(model.import({{"*"}, recipe::Ties::AsExported})), ElementsAre("val_1", "val_2", "val_3"));
  }
}

TEST(Ties, ACopyIsOneWithTheParameterItWasMadeFrom) {
  ModelBuilder model;
  model.input("x", {-1, 2});
  model.weight("fc.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
  model.weight("val_1", {2, 3}, {1, 3, 5, 2, 4, 6});
  model.computed("val_1", "['fc.weight']");
  model.node("MatMul", {"x", "val_1"}, {"a"});
  model.node("MatMul", {"a", "fc.weight"}, {"y"});
  model.output("y", {-1, 2});
  Imported seen = model.import();
  EXPECT_THAT(params(seen), ElementsAre("fc.weight"));
  EXPECT_THAT(seen.text, HasSubstr("'val_1' was made from 'fc.weight', transposed"));
}

// Without the weights' file what the exporter says and the shapes have to do: of matrices, which it copies.
TEST(Ties, CopiesAreOneWithoutTheirNumbersToo) {
  ModelBuilder model;
  model.input("x", {-1, 2});
  model.external("fc.weight", {3, 2}, "absent.bin", 0);
  model.external("val_1", {2, 3}, "absent.bin", 4096);
  model.external("val_2", {2}, "absent.bin", 8192);
  model.external("val_3", {2}, "absent.bin", 12288);
  for (const auto &[copy, origin] : {std::pair("val_1", "fc.weight"), {"val_2", "A_log"}, {"val_3", "A_log"}})
    model.computed(copy, std::string("['") + origin + "']");
  model.node("MatMul", {"x", "val_1"}, {"a"});
  model.node("MatMul", {"a", "fc.weight"}, {"b"});
  model.node("Mul", {"b", "val_2"}, {"c"});
  model.node("Mul", {"c", "val_3"}, {"y"});
  model.output("y", {-1, 2});
  Imported seen = model.import();
  EXPECT_THAT(params(seen), ElementsAre("fc.weight", "val_2", "val_3")); // exp(A_log) and its square, say
  EXPECT_THAT(seen.text, HasSubstr("'val_1' was made from 'fc.weight', transposed"));
}

TEST(Ties, CopiesOfCopiesKeepOneParameter) {
  for (const char *origin : {"val_1", "fc.weight"}) { // of val_2, from which val_1 was made
    ModelBuilder model;
    model.input("x", {-1, 4});
    for (const char *name : {"val_1", "val_2", "fc.weight"}) model.filled(name, {4, 4}, 3);
    model.computed("val_1", "['val_2']");
    model.computed("val_2", std::string("['") + origin + "']");
    model.node("MatMul", {"x", "val_1"}, {"a"});
    model.node("MatMul", {"a", "val_2"}, {"b"});
    model.node("MatMul", {"b", "fc.weight"}, {"y"});
    model.output("y");
    Imported seen = model.import();
    EXPECT_THAT(params(seen), ElementsAre("val_2", "fc.weight"));
    EXPECT_THAT(seen.text, HasSubstr("aliases = [\"val_1\"]"));
  }
}

} // namespace
} // namespace cleave::import_
