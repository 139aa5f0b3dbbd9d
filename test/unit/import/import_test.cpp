#include "dialects/onnx/Onnx.h"
#include "test/unit/import/model_builder.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave::import_ {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

onnx::ParamOp param(const Imported &seen, const std::string &name) {
  EXPECT_TRUE(seen.module) << seen.error;
  return seen.module ? seen.op().lookupSymbol<onnx::ParamOp>(name) : onnx::ParamOp();
}
std::string why(const Imported &seen, const std::string &name) {
  onnx::ParamOp op = param(seen, name);
  return op ? onnx::whyAttr.of(op)->str() : "";
}

TEST(Import, OffsetsPointIntoTheFile) {
  ModelBuilder model;
  std::vector<float> w = ModelBuilder::numbers({4, 4}), b = ModelBuilder::numbers({4});
  model.input("x", {-1, 4});
  model.weight("w", {4, 4}, w);
  ::onnx::TensorProto *bias = model.weight("b", {4}, {});
  bias->clear_raw_data();
  for (float value : b) bias->add_float_data(value); // packed: contiguous in the file too
  model.node("Gemm", {"x", "w", "b"}, {"y"});
  model.output("y");
  Imported seen = model.import();
  std::string bytes = model.bytes();
  for (auto [name, values] : {std::pair{"w", w}, {"b", b}}) {
    onnx::ParamOp op = param(seen, name);
    ASSERT_TRUE(op);
    EXPECT_EQ(*op.getPath(), "");
    EXPECT_EQ(bytes.substr(*op.getOffset(), *op.getLength()),
              std::string(reinterpret_cast<const char *>(values.data()), values.size() * 4));
    EXPECT_TRUE(op.getTrainable());
    EXPECT_EQ(*op.getUsedBy(), "node_y");
  }
  EXPECT_THAT(seen.text, HasSubstr("tensor<?x4xf32> {onnx.dims = [\"batch\", \"\"], onnx.name = \"x\"}"));
  EXPECT_THAT(seen.text, HasSubstr("onnx.node \"Gemm\"(%arg0, %0, %1)"));
}

TEST(Import, InitializersThatAreInputsAndConstants) {
  ModelBuilder model;
  model.input("x", {2, 4});
  model.input("w", {4, 4});
  model.weight("w", {4, 4});
  model.integers("shape", {2}, {2, 4});
  ::onnx::NodeProto *constant = model.node("Constant", {}, {"c"});
  ::onnx::AttributeProto *value = constant->add_attribute();
  value->set_name("value_floats");
  value->set_type(::onnx::AttributeProto::FLOATS);
  for (float f : {1.f, 2.f, 3.f, 4.f}) value->add_floats(f);
  model.node("MatMul", {"x", "w"}, {"m"});
  model.node("Reshape", {"m", "shape"}, {"r"});
  model.node("Add", {"r", "c"}, {"y"});
  model.output("y", {2, 4});
  Imported seen = model.import();
  EXPECT_THAT(seen.text, HasSubstr("func.func @model(%arg0: tensor<2x4xf32>"));
  EXPECT_THAT(seen.text, Not(HasSubstr("%arg1")));
  EXPECT_THAT(seen.text, HasSubstr("onnx.Constant dense<[2, 4]> : tensor<2xi64>"));
  EXPECT_THAT(seen.text, HasSubstr("onnx.Constant dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]>"));
}

TEST(Import, FunctionsAreInlined) {
  ModelBuilder model;
  model.opset("my", 1);
  ::onnx::FunctionProto *function = model.proto.add_functions();
  function->set_domain("my");
  function->set_name("Scale");
  function->add_input("a");
  function->add_input("unused");
  function->add_output("b");
  function->add_attribute("alpha");
  ::onnx::OperatorSetIdProto *import = function->add_opset_import();
  import->set_version(17);
  ModelBuilder::fill(function->add_node(), "Relu", {"a"}, {"t"});
  ::onnx::AttributeProto *alpha = ModelBuilder::fill(function->add_node(), "LeakyRelu", {"t"}, {"b"})->add_attribute();
  alpha->set_name("alpha");
  alpha->set_ref_attr_name("alpha");
  alpha->set_type(::onnx::AttributeProto::FLOAT);
  model.input("x", {-1, 4});
  for (auto [in, out] : {std::pair{"x", "m"}, {"m", "y"}}) {
    ::onnx::AttributeProto *given = model.node("Scale", {in}, {out}, "my")->add_attribute();
    given->set_name("alpha");
    given->set_type(::onnx::AttributeProto::FLOAT);
    given->set_f(0.25);
  }
  model.output("y");
  Imported seen = model.import();
  EXPECT_THAT(seen.text, Not(HasSubstr("\"Scale\"")));
  EXPECT_THAT(seen.text,
              HasSubstr("node_name = \"node_m/node_b\", onnx_attributes = {alpha = 2.500000e-01 : f32}, version = 17"));
  EXPECT_THAT(seen.text, HasSubstr("node_name = \"node_y/node_t\""));
  ModelBuilder::fill(function->add_node(), "Scale", {"a"}, {"z"}, "my");
  EXPECT_THAT(model.import().error, HasSubstr("calls itself"));
}

TEST(Import, SubgraphsAreRegions) {
  ModelBuilder model;
  model.input("c", {}, ::onnx::TensorProto::BOOL);
  model.input("x", {-1, 4});
  model.weight("w", {4});
  ::onnx::NodeProto *node = model.node("If", {"c"}, {"y"});
  for (const char *branch : {"then_branch", "else_branch"}) {
    ::onnx::AttributeProto *attribute = node->add_attribute();
    attribute->set_name(branch);
    attribute->set_type(::onnx::AttributeProto::GRAPH);
    ModelBuilder::fill(attribute->mutable_g()->add_node(), "Add", {"x", "w"}, {"r"});
    attribute->mutable_g()->add_output()->set_name("r");
  }
  model.output("y");
  Imported seen = model.import();
  EXPECT_THAT(seen.text, HasSubstr("else_branch = 1 : i64, then_branch = 0 : i64"));
  EXPECT_THAT(seen.text, HasSubstr("onnx.node \"yield\""));
  EXPECT_THAT(seen.text, HasSubstr("node_name = \"node_y/node_r\""));
}

TEST(Import, RolesFollowUse) {
  ModelBuilder model;
  model.input("x", {-1, 4, 8, 8});
  model.weight("scale", {4});
  model.weight("bias", {4});
  model.filled("stats", {4}, 1); // mean and variance, merged by an exporter
  model.node("BatchNormalization", {"x", "scale", "bias", "stats", "stats"}, {"n"});
  model.weight("eps", {}, {1e-5f});
  std::vector<float> mask(64, 0);
  mask[3] = -INFINITY;
  model.weight("mask", {8, 8}, mask);
  model.weight("rotary", {1, 1, 8, 8});
  model.node("Add", {"n", "eps"}, {"a"});
  model.node("Add", {"a", "mask"}, {"b"});
  model.node("Mul", {"b", "rotary"}, {"d"});
  model.weight("filter.weight", {8, 8});
  model.node("Mul", {"d", "filter.weight"}, {"f"});
  model.weight("logit.bias", {1}, {0.5});
  model.node("MatMul", {"f", "k"}, {"e"});
  model.weight("k", {8, 1});
  model.node("Add", {"e", "logit.bias"}, {"y"});
  model.output("y");
  Imported seen = model.import();
  EXPECT_TRUE(param(seen, "scale").getTrainable());
  EXPECT_EQ(param(seen, "stats").getRole(), "running_statistic");
  EXPECT_EQ(why(seen, "stats"), "running mean");
  EXPECT_EQ(why(seen, "stats#2"), "running variance");
  EXPECT_FALSE(param(seen, "eps"));
  EXPECT_FALSE(param(seen, "mask"));
  EXPECT_TRUE(param(seen, "rotary").getTrainable()); // multiplied entry by entry, of no table's numbers
  EXPECT_TRUE(param(seen, "filter.weight").getTrainable());
  EXPECT_TRUE(param(seen, "logit.bias"));
  EXPECT_TRUE(param(model.import({{"eps", "rotary"}}), "eps").getTrainable());
  EXPECT_FALSE(param(model.import({{"scale"}}), "logit.bias"));          // small and frozen: a constant
  EXPECT_TRUE(param(model.import({{"node_n"}}), "bias").getTrainable()); // by the node that uses it
}

// A model that multiplies its input by each of these, and what trains of it.
std::vector<std::string> trainedFactors(ModelBuilder &model, const std::vector<std::string> &factors,
                                        const std::vector<std::string> &trainable = {"*"}) {
  model.input("x", {-1, 4});
  std::string last = "x";
  for (const std::string &factor : factors) {
    model.node("Add", {last, factor}, {last + "'"});
    last += "'";
  }
  model.output(last);
  std::vector<std::string> names;
  Imported seen = model.import({trainable});
  for (const std::string &factor : factors)
    if (onnx::ParamOp op = param(seen, factor); op && op.getTrainable()) names.push_back(factor);
  return names;
}

TEST(Import, WhatPyTorchCallsABufferDoesNotTrain) {
  for (bool named : {false, true}) {
    ModelBuilder model;
    for (const char *name : {"scale", "number"}) model.weight(name, {}, {2.0f});
    for (const char *name : {"table", "buffer", "constant", "unknown"}) model.weight(name, {4});
    model.sign("p_scale: PARAMETER target='scale'");
    model.sign("p_table: PARAMETER target='table'");
    model.sign("b_buffer: BUFFER target='buffer' persistent=True");
    model.sign("c_constant: CONSTANT_TENSOR target='constant'");
    model.sign("x: USER_INPUT\n\n# outputs"); // the parameters and buffers below are what outputs go to
    model.sign("add: PARAMETER_MUTATION target='table'");
    model.sign("grad: GRADIENT_TO_PARAMETER target='scale'");
    auto trained = trainedFactors(model, {"scale", "number", "table", "buffer", "constant", "unknown"},
                                  {"*", named ? "buffer" : "table"});
    EXPECT_EQ(trained, named ? std::vector<std::string>({"scale", "table", "buffer"})
                             : std::vector<std::string>({"scale", "table"})); // the list has all parameters
  }
}

// A tensor that the exporter computed trains only if a parameter went into it, and a note says so.
TEST(Import, WhatTheExporterComputed) {
  ModelBuilder model;
  for (const char *name : {"frequencies", "bias", "rows"}) model.weight(name, {4});
  for (const char *name : {"exp", "twice"}) model.weight(name, {}, {2.0f});
  model.weight("kept", {4});
  model.sign("p_table: PARAMETER target='table'");
  model.sign("p_scale: PARAMETER target='scale'");
  model.sign("p_kept: PARAMETER target='kept'");
  model.sign("b_angles: BUFFER target='angles' persistent=False");
  model.computed("frequencies", "['angles', 'arange', 'val_3']");
  model.computed("bias", "['index', 'table']");
  model.computed("rows", "['kept', 'val_7']");
  model.computed("exp", "['neg', 'scale']");
  model.sign("p_half: PARAMETER target='half'");
  model.computed("twice", "['half']");
  EXPECT_EQ(trainedFactors(model, {"frequencies", "bias", "rows", "exp", "twice", "kept"}),
            std::vector<std::string>({"bias", "rows", "kept"}));
  Imported seen = model.import();
  EXPECT_THAT(seen.text, HasSubstr("'table', 'kept': parameters that train as what the exporter computed from them;"));
  EXPECT_THAT(seen.text, HasSubstr("'scale', 'half': parameters that do not train, since the exporter computed"));
}

// A tensor made of one parameter may be its copy or its transpose. Where it cannot be, or need not be, a note says so.
TEST(Import, WhatTheExporterComputedOfOneParameter) {
  ModelBuilder model;
  model.weight("decay", {4}, {1, 2, 3, 4}); // exp(A_log), say
  model.weight("gate", {4}, {1, 2, 3, 4});
  model.weight("gate_copy", {4}, {1, 2, 3, 4});
  model.weight("gate_scaled", {4}, {2, 4, 6, 8});
  model.weight("turned", {4, 4});
  for (const char *name : {"A_log", "gate", "fc.weight"})
    model.sign(fmt::format("p_{0}: PARAMETER target='{0}'", name));
  model.computed("decay", "['A_log']");
  model.computed("gate_copy", "['gate']");
  model.computed("gate_scaled", "['gate']");
  model.computed("turned", "['fc.weight']");
  model.input("y", {4, 4});
  model.node("MatMul", {"y", "turned"}, {"product"});
  model.output("product");
  EXPECT_EQ(trainedFactors(model, {"decay", "gate", "gate_scaled", "gate_copy"}),
            std::vector<std::string>({"decay", "gate", "gate_scaled"}));
  EXPECT_THAT(model.import().text,
              HasSubstr("'A_log', 'gate': parameters that train as what the exporter computed from them;"));
}

// Biases that are zero when PyTorch exports are left out of the products that add them.
TEST(Import, BiasesThatTheExporterLeftOut) {
  ModelBuilder model;
  model.input("x", {-1, 4});
  for (const char *name : {"out.weight", "head.weight", "plain.weight", "val_1"}) model.weight(name, {4, 4});
  model.weight("head.bias", {4});
  for (const char *name :
       {"out.weight", "out.bias", "head.weight", "head.bias", "plain.weight", "fc.weight", "fc.bias"})
    model.sign(fmt::format("p_{0}: PARAMETER target='{0}'", name));
  model.computed("val_1", "['fc.weight']");
  model.node("Gemm", {"x", "out.weight"}, {"a"});
  model.node("Gemm", {"a", "head.weight", "head.bias"}, {"b"});
  model.node("Gemm", {"b", "plain.weight"}, {"c"});
  model.node("Gemm", {"c", "val_1"}, {"y"});
  model.output("y");
  EXPECT_THAT(model.import().text,
              HasSubstr("'out.bias', 'fc.bias': parameters that do not train, since the exporter left them out"));
}

TEST(Import, ASingleNumberTrainsWhereItIsAModules) {
  for (bool torchScript : {false, true}) { // whose nodes are called after modules, as others' may be too
    ModelBuilder model;
    if (torchScript) model.proto.set_producer_name("pytorch");
    for (const char *name : {"blocks.0.alpha", "alpha", "const.scale", "onnx::Add_7", "const_fold_opt__1:0"})
      model.weight(name, {}, {2.0f});
    model.weight("w", {4});
    model.weight("blocks.0.weight", {4, 4});
    model.node("MatMul", {"w", "blocks.0.weight"}, {"product"});
    model.node("Add", {"w", "w"}, {"twice"})->set_name("/blocks.0/Add");
    auto trained =
        trainedFactors(model, {"blocks.0.alpha", "alpha", "const.scale", "onnx::Add_7", "const_fold_opt__1:0"});
    // TorchScript tells no buffers from parameters: these are doubts (statement_test.cpp).
    EXPECT_EQ(trained, torchScript ? std::vector<std::string>() : std::vector<std::string>({"blocks.0.alpha"}));
  }
}

// Buffers that TorchScript calls after their modules as it does parameters; the bias of one output is a weight.
TEST(Import, ANumberThatAMaskFillsInDoesNotTrain) {
  ModelBuilder model;
  model.input("x", {-1, 4});
  for (const char *name : {"h.0.masked_bias", "h.0.bias"}) model.weight(name, {1}, {-1e4f});
  for (const char *name : {"h.0.fill", "h.0.alpha"}) model.weight(name, {}, {2.0f});
  model.weight("h.0.weight", {4, 1});
  model.node("MatMul", {"x", "h.0.weight"}, {"m"});
  model.node("Add", {"m", "h.0.bias"}, {"a"});
  model.node("Mul", {"a", "h.0.alpha"}, {"b"});
  model.node("Add", {"b", "h.0.masked_bias"}, {"c"});
  model.node("IsNaN", {"c"}, {"isNaN"});
  model.node("Where", {"isNaN", "h.0.fill", "c"}, {"y"});
  model.output("y", {-1, 1});
  Imported seen = model.import();
  for (const char *name : {"h.0.masked_bias", "h.0.fill"}) EXPECT_FALSE(param(seen, name)) << name;
  for (const char *name : {"h.0.bias", "h.0.alpha"}) {
    onnx::ParamOp op = param(seen, name);
    EXPECT_TRUE(op && op.getTrainable()) << name;
  }
}

TEST(Import, PatternsNameWhatTheExporterRenamed) {
  ModelBuilder model;
  for (const char *name : {"val_1", "val_2", "val_3"}) model.weight(name, {4});
  model.computed("val_1", "['q.lora_A']");
  model.computed("val_2", "['q.weight']");
  EXPECT_EQ(trainedFactors(model, {"val_1", "val_2", "val_3"}, {"*lora*"}), std::vector<std::string>({"val_1"}));
}

// An nn.Parameter that asks for no gradient is one in PyTorch's signature, too.
TEST(Import, TablesThatTheSignatureCallsParametersDoNotTrain) {
  ModelBuilder model;
  std::vector<float> positions(4 * 8), mask(16, 0);
  for (int64_t i = 0; i < 32; ++i) {
    const double angle = static_cast<double>(i / 8) * std::pow(10000.0, -static_cast<double>(i / 2 % 4) / 4);
    positions[i] = static_cast<float>(i % 2 ? std::cos(angle) : std::sin(angle));
  }
  mask[3] = -INFINITY;
  model.weight("positions", {4, 8}, positions);
  model.weight("mask", {4, 4}, mask);
  model.weight("rotary.inv_freq", {4});
  model.weight("weight", {4, 8});
  for (const char *name : {"positions", "mask", "rotary.inv_freq", "weight"})
    model.sign(std::string("p: PARAMETER target='") + name + "'");
  EXPECT_EQ(trainedFactors(model, {"positions", "mask", "rotary.inv_freq", "weight"}),
            std::vector<std::string>({"weight"}));
}

// Sines and cosines by turns, or one half after the other; a row of zeros in front, as for padding.
TEST(Import, SinusoidalPositionsAndMasksDoNotTrain) {
  const int64_t rows = 6, width = 8;
  std::vector<float> turns(rows * width, 0), halves(rows * width), other;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < width / 2; ++i) {
      double angle = static_cast<double>(row) * std::pow(10000.0, -2.0 * static_cast<double>(i) / width);
      if (row > 0) turns[row * width + 2 * i] = static_cast<float>(std::sin(angle));
      if (row > 0) turns[row * width + 2 * i + 1] = static_cast<float>(std::cos(angle));
      halves[row * width + i] = static_cast<float>(std::sin(angle));
      halves[row * width + i + width / 2] = static_cast<float>(std::cos(angle));
    }
  other = halves;
  other[13] += 0.1f;
  std::vector<float> windows(16, 0), numbers(16, 0);
  windows[3] = windows[9] = -100;
  numbers[3] = -100, numbers[9] = -101;
  ModelBuilder model;
  model.weight("turns", {rows, width}, turns);
  model.weight("halves", {1, rows, width}, halves);
  model.weight("other", {rows, width}, other);
  model.weight("windows", {4, 4}, windows);
  model.weight("numbers", {4, 4}, numbers);
  model.weight("signs", {2, 4}, {1, 0, 0, 1, 0, 1, 1, 0});
  EXPECT_EQ(trainedFactors(model, {"turns", "halves", "other", "windows", "numbers", "signs"}),
            std::vector<std::string>({"other", "numbers", "signs"}));
}

// A module's buffers that an exporter calls like its parameters.
TEST(Import, TablesOfAnglesDoNotTrain) {
  const int64_t rows = 9, width = 4;
  std::vector<float> cosines(rows * width), sines(rows * width), other, ramp(rows * width);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < width; ++i) {
      const double angle = double(row) * std::pow(10000.0, -double(i) / double(width));
      cosines[row * width + i] = float(std::cos(angle));
      sines[row * width + i] = float(std::sin(angle));
      ramp[row * width + i] = float(double(row * i) / double(rows * width));
    }
  other = cosines;
  other[13] += 0.01f;
  ModelBuilder model;
  model.weight("rope.cosines", {rows, width}, cosines);
  model.weight("rope.sines", {1, rows, 1, width}, sines);
  model.weight("rope.other", {rows, width}, other);
  model.weight("rope.ramp", {rows, width}, ramp);
  model.weight("rope.zeros", {rows, width}, std::vector<float>(rows * width, 0));
  EXPECT_EQ(trainedFactors(model, {"rope.cosines", "rope.sines", "rope.other", "rope.ramp", "rope.zeros"}),
            std::vector<std::string>({"rope.other", "rope.ramp", "rope.zeros"}));
}

// A group normalization as exporters write it for opsets that have none.
TEST(Import, ANeutralScaleBeforeTheLayersOwnDoesNotTrain) {
  for (bool written : {true, false}) { // false: an instance normalization of the model's own
    ModelBuilder model;
    model.input("x", {-1, 8, 4, 4});
    model.filled("val_1", {2}, 1);
    model.filled("val_2", {2}, 0);
    model.node("InstanceNormalization", {"x", "val_1", "val_2"}, {"n"});
    model.integers("shape", {4}, {-1, 8, 4, 4});
    model.node("Reshape", {"n", "shape"}, {"r"});
    model.weight("own", {8, 1, 1});
    model.node(written ? "Mul" : "Sub", {"r", "own"}, {"y"});
    model.output("y");
    Imported seen = model.import();
    EXPECT_EQ(bool(param(seen, "val_1")), !written);
    EXPECT_EQ(bool(param(seen, "val_2")), !written);
    EXPECT_TRUE(param(seen, "own").getTrainable());
    EXPECT_TRUE(param(model.import({{"val_1", "*"}}), "val_1").getTrainable());
  }
}

TEST(Import, LargeFrozenWeightsStayInTheFile) {
  ModelBuilder model;
  model.input("x", {-1, 64});
  model.weight("w", {64, 64});
  model.node("MatMul", {"x", "w"}, {"y"});
  model.output("y", {-1, 64});
  Imported seen = model.import({{"other"}});
  ASSERT_TRUE(param(seen, "w"));
  EXPECT_FALSE(param(seen, "w").getTrainable());
  EXPECT_EQ(why(seen, "w"), "not named by `trainable`");
}

TEST(ExternalData, IsFoundCheckedOrMissing) {
  ModelBuilder model;
  model.input("x", {-1, 4});
  ::onnx::TensorProto *w = model.external("w", {4, 4}, "data/weights.bin", 8);
  model.node("MatMul", {"x", "w"}, {"y"});
  model.output("y");
  Imported seen = model.import();
  EXPECT_EQ(*param(seen, "w").getPath(), "data/weights.bin");
  EXPECT_EQ(*param(seen, "w").getOffset(), 8);
  EXPECT_THAT(seen.text, HasSubstr("onnx.missing_files = [\"the weight file 'data/weights.bin' is missing"));
  EXPECT_THAT(seen.text, HasSubstr("onnx.notes = []")); // which compiling warns of: a recipe may give initial weights
  fs::create_directories(model.folder / "data");
  model.write("data/weights.bin", std::string(72, 'x'));
  seen = model.import();
  EXPECT_TRUE(param(seen, "w").getTrainable());
  EXPECT_THAT(seen.text, Not(HasSubstr("is missing")));
  model.write("data/weights.bin", std::string(71, 'x'));
  EXPECT_THAT(model.import().error, HasSubstr("beyond the end of 'data/weights.bin' (71 bytes)"));
  ModelBuilder::entry(w, "length", "63");
  EXPECT_THAT(model.import().error, HasSubstr("63 bytes are stored, its shape and type need 64"));
  ModelBuilder::entry(w, "offset", "-3");
  EXPECT_THAT(model.import().error, HasSubstr("bad number '-3'"));
}

TEST(ExternalData, MayNotLeaveTheFolder) {
  for (const char *location :
       {"/etc/passwd", "../weights.bin", "data/../../weights.bin", "link.bin", "linked/weights.bin", ""}) {
    ModelBuilder model;
    fs::create_symlink("/etc/passwd", model.folder / "link.bin");
    fs::create_directory_symlink("/", model.folder / "linked");
    model.input("x", {-1, 4});
    model.external("w", {4, 4}, location, 0);
    model.node("MatMul", {"x", "w"}, {"y"});
    model.output("y");
    EXPECT_THAT(model.import().error, HasSubstr("external data must lie inside the model's folder")) << location;
  }
}

TEST(Import, FaultsAreErrors) {
  EXPECT_THAT(importFile("/nowhere/model.onnx").error, HasSubstr("there is no such file"));
  ModelBuilder model;
  EXPECT_THAT(importFile(model.folder.string()).error, HasSubstr("is a folder"));
  EXPECT_THAT(importFile(model.write("empty.onnx", "")).error, HasSubstr("the file is empty"));
  EXPECT_THAT(importFile(model.write("text.onnx", "hello, this is no model")).error, HasSubstr("not an ONNX model"));
  model.write("training_model.onnx", "x");
  EXPECT_THAT(importFile(model.folder.string()).error, HasSubstr("onnxruntime-training"));

  model.input("x", {-1, 4});
  model.node("Relu", {"x"}, {"y"});
  model.output("y");
  EXPECT_EQ(model.import().error, "");
  model.proto.set_ir_version(15);
  EXPECT_THAT(model.import().error, HasSubstr("IR version 15; versions 3 to 14"));
  model.proto.set_ir_version(3);
  EXPECT_EQ(model.import().error, "");
  model.proto.mutable_opset_import(0)->set_version(0);
  EXPECT_THAT(model.import().error, HasSubstr("opset 0; opsets 1 to 28"));
  model.proto.mutable_opset_import(0)->set_version(29);
  EXPECT_THAT(model.import().error, HasSubstr("opset 29"));
  model.proto.mutable_opset_import(0)->set_domain("ai.onnx");
  model.proto.mutable_opset_import(0)->set_version(28);
  EXPECT_EQ(model.import().error, "");
  model.node("Relu", {"nothing"}, {"z"});
  EXPECT_THAT(model.import().error,
              HasSubstr("node 'node_z' (Relu) reads 'nothing', which nothing before it produces"));
  model.proto.mutable_graph()->mutable_node(1)->set_input(0, "x");
  model.proto.mutable_graph()->mutable_node(1)->set_output(0, "y");
  EXPECT_THAT(model.import().error, HasSubstr("produces the value 'y' a second time"));
}

TEST(Import, TensorFaultsNameTheTensor) {
  auto with = [](auto change) {
    ModelBuilder model;
    model.input("x", {-1, 4});
    change(model, model.weight("w", {4, 4}));
    model.node("MatMul", {"x", "w"}, {"y"});
    model.output("y");
    return model.import().error;
  };
  EXPECT_THAT(with([](ModelBuilder &, ::onnx::TensorProto *w) { w->set_raw_data("abc"); }),
              HasSubstr("tensor 'w': 3 bytes are stored"));
  EXPECT_THAT(with([](ModelBuilder &, ::onnx::TensorProto *w) { w->set_data_type(::onnx::TensorProto::STRING); }),
              HasSubstr("tensor 'w' has the unsupported type string"));
  EXPECT_THAT(with([](ModelBuilder &, ::onnx::TensorProto *w) { w->set_dims(0, -4); }),
              HasSubstr("impossible dimension"));
  EXPECT_THAT(with([](ModelBuilder &, ::onnx::TensorProto *w) { w->set_dims(0, INT64_MAX / 2); }),
              HasSubstr("impossible dimension"));
  EXPECT_THAT(with([](ModelBuilder &model, ::onnx::TensorProto *) {
                model.proto.mutable_graph()->add_sparse_initializer()->mutable_values()->set_name("s");
              }),
              HasSubstr("initializer 's' is sparse"));
  EXPECT_THAT(with([](ModelBuilder &model, ::onnx::TensorProto *) { model.weight("w", {4, 4}); }),
              HasSubstr("two initializers"));
}

TEST(Import, DamagedFilesNeverCrash) {
  ModelBuilder model;
  model.input("x", {-1, 4});
  model.weight("w", {4, 4});
  model.integers("s", {2}, {-1, 4});
  model.node("MatMul", {"x", "w"}, {"m"});
  model.node("Reshape", {"m", "s"}, {"y"});
  model.output("y");
  std::string good = model.bytes();
  for (size_t length = 0; length < good.size(); ++length)
    (void)importFile(model.write("cut.onnx", good.substr(0, length)));
  int refused = 0;
  for (size_t at = 0; at < good.size(); ++at)
    for (char pattern : {'\x01', '\x80', '\xff'}) {
      std::string damaged = good;
      damaged[at] ^= pattern;
      refused += !importFile(model.write("damaged.onnx", damaged)).module;
    }
  EXPECT_GT(refused, 100);
}

TEST(Inspect, TellsWhatIsThere) {
  ModelBuilder model;
  model.opset("com.acme", 1);
  model.input("x", {-1, 64});
  model.weight("w", {64, 64});
  model.node("MatMul", {"x", "w"}, {"m"});
  model.node("Frob", {"m"}, {"f"}, "com.acme");
  model.node("Frob", {"f"}, {"y"}, "com.acme");
  model.output("y", {-1, 64});
  Imported seen = model.import();
  Inspection inspection = inspectModule(
      *seen.module, [](const std::string &domain, const std::string &, int64_t) { return domain.empty(); });
  EXPECT_EQ(inspection.trainedElements, 4096);
  ASSERT_EQ(inspection.unsupported.size(), 1u);
  EXPECT_THAT(inspection.unsupported[0].nodes, testing::ElementsAre("node_f", "node_y"));
  EXPECT_THAT(inspection.inputs[0].shape, testing::ElementsAre("batch", "64"));
  EXPECT_EQ(inspection.operators.at("com.acme.Frob"), 2);
  EXPECT_THAT(inspection.text(), HasSubstr("com.acme.Frob (version 1): node_f, node_y"));
  EXPECT_THAT(inspection.text(), HasSubstr("used by node_m"));
  EXPECT_THAT(inspection.json(), HasSubstr("\"unsupported\": [\n  {\n   \"domain\": \"com.acme\""));
}

} // namespace
} // namespace cleave::import_
