// Every gradient facet against central differences: the loss is sum(c * y) with random c, evaluated in double
// precision.
#include "test/unit/training/step_harness.h"
#include <cmath>
#include <set>

using namespace cleave;
using namespace cleave::training;
using namespace cleave::training::testing;

namespace {

struct Operand {
  std::string type; // "3x4xf32"
  double low = -1, high = 1;
};
struct Case {
  std::string name;              // the op under test, as "Tanh" or "Tanh/variant"
  std::vector<Operand> operands; // floats are parameters %p0, %p1 ...
  std::string body;              // defines %y
  std::string type;              // of %y
};

void PrintTo(const Case &test, std::ostream *out) { *out << test.name; }

std::vector<int64_t> shapeOf(const std::string &type) {
  std::vector<int64_t> shape;
  for (size_t at = 0; std::isdigit(type[at]); at = type.find('x', at) + 1) shape.push_back(std::stoll(type.substr(at)));
  return shape;
}
std::string tensor(const std::string &type) { return "tensor<" + type + ">"; }

// %y = onnx.OP %p0 ATTRIBUTES with one operand of any type
Case unary(const std::string &op, double low, double high, const std::string &attributes = "",
           const std::string &from = "3x4xf32", const std::string &to = "3x4xf32") {
  std::string mnemonic = op.substr(0, op.find('/'));
  return {op,
          {{from, low, high}},
          "%y = onnx." + mnemonic + " %p0 " + attributes + " : (" + tensor(from) + ") -> " + tensor(to),
          to};
}
Case binary(const std::string &op, Operand a, Operand b, const std::string &to, const std::string &attributes = "") {
  std::string mnemonic = op.substr(0, op.find('/'));
  return {op,
          {a, b},
          "%y = onnx." + mnemonic + " %p0, %p1 " + attributes + " : (" + tensor(a.type) + ", " + tensor(b.type) +
              ") -> " + tensor(to),
          to};
}

std::vector<Case> cases() {
  const std::string m = "3x4xf32";
  std::string conv = "{strides = array<i64: 2, 1>, pads_begin = array<i64: 1, 0>, pads_end = array<i64: 0, 1>, "
                     "dilations = array<i64: 1, 2>, groups = 2 : i64";
  std::string pool = "{kernel = array<i64: 2, 3>, strides = array<i64: 2, 1>, pads_begin = array<i64: 1, 0>, "
                     "pads_end = array<i64: 0, 1>, dilations = array<i64: 1, 1>";
  return {
      unary("Neg", -2, 2),
      unary("Abs", 0.1, 2),
      unary("Abs/negative", -2, -0.1),
      unary("Exp", -2, 2),
      unary("Log", 0.2, 3),
      unary("Log1p", -0.5, 2),
      unary("Sqrt", 0.2, 3),
      unary("Rsqrt", 0.2, 3),
      unary("Reciprocal", 0.3, 2),
      unary("Tanh", -2, 2),
      unary("Sigmoid", -3, 3),
      unary("Erf", -2, 2),
      unary("Sin", -3, 3),
      unary("Cos", -3, 3),
      unary("Relu", 0.1, 2),
      unary("Relu/negative", -2, -0.1),
      unary("Cast", -2, 2, "{to = f64}", m, "3x4xf64"),
      unary("Sign", 0.1, 2),
      unary("Floor", 0.1, 0.9),
      unary("Ceil", 0.1, 0.9),
      unary("Round", 0.6, 0.9),
      binary("Add", {m}, {m}, m),
      binary("Sub", {m}, {m}, m),
      binary("Mul", {m}, {m}, m),
      binary("Div", {m}, {m, 0.5, 2}, m),
      binary("Pow", {m, 0.3, 2}, {m, -2, 2}, m),
      {"Pow/square",
       {{m, -2, 2}},
       "%e = onnx.Constant dense<2.0> : tensor<3x4xf32>\n"
       "%y = onnx.Pow %p0, %e : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>",
       m},
      {"Pow/cube",
       {{m, -2, 2}},
       "%e = onnx.Constant dense<3.0> : tensor<3x4xf32>\n"
       "%y = onnx.Pow %p0, %e : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>",
       m},
      {"Pow/constant",
       {{m, 0.2, 2}},
       "%e = onnx.Constant dense<-1.5> : tensor<3x4xf32>\n"
       "%y = onnx.Pow %p0, %e : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>",
       m},
      binary("Max", {m, 0, 1}, {m, -0.5, 0.5}, m),
      binary("Min", {m, 0, 1}, {m, -0.5, 0.5}, m),
      {"Where",
       {{m}, {m}, {m}},
       "%z = onnx.Constant dense<0.0> : tensor<3x4xf32>\n"
       "%mask = onnx.Greater %p0, %z : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xi1>\n"
       "%y = onnx.Where %mask, %p1, %p2 : (tensor<3x4xi1>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>",
       m},
      {"Sum",
       {{m}, {m}, {m}},
       "%y = onnx.Sum %p0, %p1, %p2, %p0 : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> "
       "tensor<3x4xf32>",
       m},
      unary("Reshape", -1, 1, "{shape = array<i64: 2, 6>}", m, "2x6xf32"),
      unary("Roll", -1, 1, "{dim = 1 : i64, distance = 3 : i64}"),
      unary("Transpose", -1, 1, "{perm = array<i64: 2, 0, 1>}", "2x3x4xf32", "4x2x3xf32"),
      unary("Broadcast", -1, 1, "{shape = array<i64: 2, 3, 5, 4>, dims = array<i64: 1, 3>}", m, "2x3x5x4xf32"),
      unary("Slice", -1, 1, "{starts = array<i64: 1, 2>, sizes = array<i64: 2, 3>, steps = array<i64: 1, 2>}",
            "4x9xf32", "2x3xf32"),
      unary("Pad", -1, 1,
            "{low = array<i64: 1, 0>, high = array<i64: 0, 2>, interior = array<i64: 1, 2>, value = 7.0 : f64}", m,
            "6x12xf32"),
      binary("Concat", {m}, {"3x2xf32"}, "3x6xf32", "{axis = 1 : i64}"),
      {"Gather",
       {{"5x4xf32"}},
       "%i = onnx.Constant dense<[[0, 3], [3, -1]]> : tensor<2x2xi64>\n"
       "%y = onnx.Gather %p0, %i {axis = 0 : i64} : (tensor<5x4xf32>, tensor<2x2xi64>) -> tensor<2x2x4xf32>",
       "2x2x4xf32"},
      {"Gather/inner",
       {{"2x5x3xf32"}},
       "%i = onnx.Constant dense<[0, 3, 3]> : tensor<3xi64>\n"
       "%y = onnx.Gather %p0, %i {axis = 1 : i64} : (tensor<2x5x3xf32>, tensor<3xi64>) -> tensor<2x3x3xf32>",
       "2x3x3xf32"},
      {"ScatterAdd",
       {{"2x3x4xf32"}},
       "%i = onnx.Constant dense<[0, 3, 3]> : tensor<3xi64>\n"
       "%y = onnx.ScatterAdd %i, %p0 {axis = 1 : i64, rows = 5 : i64} : (tensor<3xi64>, tensor<2x3x4xf32>) -> "
       "tensor<2x5x4xf32>",
       "2x5x4xf32"},
      unary("CumSum", -1, 1, "{axis = 1 : i64}"),
      unary("CumSum/exclusive", -1, 1, "{axis = 0 : i64, exclusive}"),
      unary("CumSum/reverse", -1, 1, "{axis = 1 : i64, exclusive, reverse}"),
      unary("ReduceSum", -1, 1, "{axes = array<i64: 0, 2>}", "2x3x4xf32", "3xf32"),
      unary("ReduceMax", -1, 1, "{axes = array<i64: 1>}", "2x3x4xf32", "2x4xf32"),
      unary("ReduceMin", -1, 1, "{axes = array<i64: 0, 2>}", "2x3x4xf32", "3xf32"),
      binary(
          "Contract", {"2x3x4xf32"}, {"4x5xf32"}, "2x3x5xf32",
          "{lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 2, 3>, result_indices = array<i64: 0, 1, 3>}"),
      binary("Contract/batched", {"2x3x4x5xf32"}, {"2x6x4x5xf32"}, "4x2x3x6xf32", // attention scores, heads third
             "{lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 4, 2, 3>, result_indices = array<i64: "
             "2, 0, 1, 4>}"),
      {"GroupedContract", // two rows of a group, and one without
       {{"2x3x4xf32"}, {"3x4x5xf32"}},
       "%g = onnx.Constant dense<[[2, 0, 2], [-3, 2, 0]]> : tensor<2x3xi64>\n"
       "%y = onnx.GroupedContract %p0, %p1, %g {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 4, 2, 3>, "
       "row_indices = array<i64: 0, 1>, result_indices = array<i64: 0, 1, 3>, group_index = 4 : i64, group_count = 3 : "
       "i64} : (tensor<2x3x4xf32>, tensor<3x4x5xf32>, tensor<2x3xi64>) -> tensor<2x3x5xf32>",
       "2x3x5xf32"},
      {"GroupedContract/sums",
       {{"4x3xf32"}, {"4x2xf32"}},
       "%g = onnx.Constant dense<[1, 0, 1, 1]> : tensor<4xi64>\n"
       "%y = onnx.GroupedContract %p0, %p1, %g {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 2>, "
       "row_indices = array<i64: 0>, result_indices = array<i64: 3, 2, 1>, group_index = 3 : i64, group_count = 2 : "
       "i64} : (tensor<4x3xf32>, tensor<4x2xf32>, tensor<4xi64>) -> tensor<2x2x3xf32>",
       "2x2x3xf32"},
      binary("Conv", {"2x4x5x6xf32"}, {"6x2x3x2xf32"}, "2x6x2x5xf32", conv + "}"),
      binary("ConvGradInput", {"2x6x2x5xf32"}, {"6x2x3x2xf32"}, "2x4x5x6xf32",
             conv + ", input_shape = array<i64: 2, 4, 5, 6>}"),
      unary("MaxPool", -1, 1, pool + "}", "2x3x5x6xf32", "2x3x3x5xf32"),
      unary("AveragePool", -1, 1, pool + ", include_pad = true}", "2x3x5x6xf32", "2x3x3x5xf32"),
      unary("AveragePool/exclude_pad", -1, 1, pool + ", include_pad = false}", "2x3x5x6xf32", "2x3x3x5xf32"),
  };
}

std::string moduleText(const Case &test) {
  std::string symbols, reads, sum = tensor(test.type),
                              scalar = "tensor<" + test.type.substr(test.type.rfind('x') + 1) + ">";
  for (size_t i = 0; i < test.operands.size(); ++i) {
    std::string n = std::to_string(i), type = tensor(test.operands[i].type);
    symbols += "onnx.param @p" + n + " : " + type + " \"parameter\" {trainable = true}\n";
    reads += "%p" + n + " = onnx.read @p" + n + " : " + type + "\n";
  }
  symbols += "onnx.param @c : " + sum + " \"parameter\" {trainable = false}\n";
  std::string axes;
  for (size_t i = 0; i < shapeOf(test.type).size(); ++i) axes += (i ? ", " : ": ") + std::to_string(i);
  return symbols + "func.func @model() -> (" + scalar + " {onnx.name = \"loss_sum\"}) {\n" + reads + test.body +
         "\n%c = onnx.read @c : " + sum + "\n%w = onnx.Mul %y, %c : (" + sum + ", " + sum + ") -> " + sum +
         "\n%l = onnx.ReduceSum %w {axes = array<i64" + axes + ">} : (" + sum + ") -> " + scalar +
         "\nreturn %l : " + scalar + "\n}\n";
}

class GradientFacet : public ::testing::TestWithParam<Case> {};

TEST_P(GradientFacet, EqualsCentralDifferences) {
  const Case &test = GetParam();
  StepHarness forward(moduleText(test)), step(moduleText(test));
  ASSERT_TRUE(step.module) << step.messages;
  ASSERT_TRUE(forward.run()) << forward.messages;
  ASSERT_TRUE(step.run(createBuildBackward({}))) << step.messages;
  auto executor = step.execute(runtime::Precision::Double), values = forward.execute(runtime::Precision::Double);
  ASSERT_TRUE(executor) << executor.status().message();
  ASSERT_TRUE(values) << values.status().message();
  std::mt19937_64 random(7);
  values->state["c"] = randomTensor(random, shapeOf(test.type), -1, 1);
  for (size_t i = 0; i < test.operands.size(); ++i)
    values->state["p" + std::to_string(i)] =
        randomTensor(random, shapeOf(test.operands[i].type), test.operands[i].low, test.operands[i].high);
  executor->state = values->state;
  auto outputs = executor->run("model", {}, {});
  ASSERT_TRUE(outputs) << outputs.status().message();
  auto loss = [&] { return (*values->run("model", {}, {})).at("loss_sum").reals().at(0); };
  for (size_t i = 0; i < test.operands.size(); ++i) {
    std::string name = "p" + std::to_string(i);
    auto found = outputs->find("gradient/" + name);
    if (found == outputs->end()) { // the condition of Where, a mask
      EXPECT_EQ(test.name, "Where");
      continue;
    }
    std::vector<double> gradient = found->second.reals();
    double *elements = values->state[name].as<double>();
    for (size_t e = 0; e < gradient.size(); ++e) {
      const double h = 1e-5, before = elements[e];
      elements[e] = before + h;
      double above = loss();
      elements[e] = before - h;
      double below = loss();
      elements[e] = before;
      double difference = (above - below) / (2 * h);
      EXPECT_NEAR(gradient[e], difference, 2e-8 + 2e-7 * std::abs(difference)) << name << " element " << e;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllOps, GradientFacet, ::testing::ValuesIn(cases()), [](const auto &info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

// A tie gives half to each operand; every tied element of a maximum gets its share.
TEST(GradientFacetTies, AreShared) {
  StepHarness step(moduleText(binary("Max", {"2xf32"}, {"2xf32"}, "2xf32")));
  ASSERT_TRUE(step.run(createBuildBackward({}))) << step.messages;
  auto executor = step.execute(runtime::Precision::Double);
  ASSERT_TRUE(executor);
  for (const char *name : {"p0", "p1", "c"})
    executor->state[name] = runtime::HostTensor::ofReals(plan::F64, {2}, {1, 3});
  auto outputs = executor->run("model", {}, {});
  ASSERT_TRUE(outputs);
  EXPECT_EQ(outputs->at("gradient/p0").reals(), (std::vector<double>{0.5, 1.5}));
  EXPECT_EQ(outputs->at("gradient/p1").reals(), (std::vector<double>{0.5, 1.5}));

  StepHarness reduced(moduleText(unary("ReduceMax", 0, 1, "{axes = array<i64: 0>}", "4xf32", "f32")));
  ASSERT_TRUE(reduced.run(createBuildBackward({}))) << reduced.messages;
  auto shared = reduced.execute(runtime::Precision::Double);
  ASSERT_TRUE(shared);
  shared->state["p0"] = runtime::HostTensor::ofReals(plan::F64, {4}, {3, 1, 3, 3});
  shared->state["c"] = runtime::HostTensor::ofReals(plan::F64, {}, {6});
  outputs = shared->run("model", {}, {});
  ASSERT_TRUE(outputs) << outputs.status().message();
  EXPECT_EQ(outputs->at("gradient/p0").reals(), (std::vector<double>{2, 0, 2, 2}));
}

// No differentiable op of the dialect is left without a case here.
TEST(GradientFacetCases, CoverTheDialect) {
  StepHarness any("");
  std::set<std::string> tested = {"StopGradient", "Attention",
                                  "ScaledAttention"}; // unit_attention: against what they stand for
  for (const Case &test : cases()) tested.insert(test.name.substr(0, test.name.find('/')));
  for (mlir::RegisteredOperationName op : any.context.getRegisteredOperationsByDialect("onnx"))
    if (op.hasInterface<onnx::GradientOpInterface>())
      EXPECT_TRUE(tested.contains(op.stripDialect().str())) << op.stripDialect().str() << " has no gradient case";
}

} // namespace
