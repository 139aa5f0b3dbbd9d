// The evaluator against numbers worked out by hand or by numpy.
#include "runtime/base/philox.h"
#include "runtime/check/reference/evaluator.h"
#include <cmath>
#include <gmock/gmock.h>

namespace cleave::runtime {
namespace {
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;

HostTensor real(std::vector<int64_t> shape, std::vector<double> values, DType dtype = plan::F32) {
  return HostTensor::ofReals(dtype, std::move(shape), values);
}
HostTensor counting(std::vector<int64_t> shape) {
  std::vector<double> values(elementCount(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = double(i);
  return real(std::move(shape), values);
}
HostTensor run(const std::string &op, std::vector<HostTensor> operands, Attributes attributes,
               std::vector<int64_t> shape, DType dtype = plan::F32, Precision precision = Precision::AsTyped) {
  std::vector<const HostTensor *> pointers;
  for (HostTensor &operand : operands) pointers.push_back(&operand);
  TensorType type{dtype, std::move(shape)};
  auto result = evaluate(op, pointers, attributes, {&type, 1}, precision);
  EXPECT_TRUE(result.isOk()) << result.status().message();
  return result ? result->front() : HostTensor{};
}

TEST(Evaluator, RoundsToTheResultTypeOrKeepsDoubles) {
  double third = 1.0 / 3;
  EXPECT_EQ(run("Div", {real({1}, {1}), real({1}, {3})}, {}, {1}).reals()[0], double(float(third)));
  HostTensor wide = run("Div", {real({1}, {1}), real({1}, {3})}, {}, {1}, plan::F32, Precision::Double);
  EXPECT_EQ(wide.dtype, plan::F64);
  EXPECT_EQ(wide.reals()[0], third);
}

TEST(Evaluator, HalfAndBfloatRoundToNearestEven) {
  auto rounded = [](plan::DType type, double value) {
    return HostTensor::ofReals(type, {}, {value}).as<uint16_t>()[0];
  };
  // ties: 1 + 2^-11 lies between 1 and 1 + 2^-10; 65520 is the first value that rounds to infinity
  EXPECT_EQ(rounded(plan::F16, 1 + 0x1p-11), 0x3c00);
  EXPECT_EQ(rounded(plan::F16, 1 + 3 * 0x1p-11), 0x3c02);
  EXPECT_EQ(rounded(plan::F16, 65519), 0x7bff);
  EXPECT_EQ(rounded(plan::F16, 65520), 0x7c00);
  EXPECT_EQ(rounded(plan::F16, 0x1p-24), 0x0001);
  EXPECT_EQ(rounded(plan::F16, -0x1p-25), 0x8000);
  EXPECT_EQ(rounded(plan::BF16, 1 + 0x1p-8), 0x3f80);
  EXPECT_EQ(rounded(plan::BF16, 1 + 0x1p-8 + 0x1p-40), 0x3f81); // double rounding would give 0x3f80
  for (auto [type, infinity] : {std::pair{plan::F16, 0x7c00}, std::pair{plan::BF16, 0x7f80}})
    for (int bits = 0; bits <= infinity; ++bits) {
      HostTensor tensor = HostTensor::zeros(type, {});
      tensor.as<uint16_t>()[0] = uint16_t(bits);
      ASSERT_EQ(rounded(type, tensor.reals()[0]), bits);
    }
}

TEST(Evaluator, IntegersWrapAndDivideAsPython) {
  HostTensor a = HostTensor::ofIntegers(plan::I64, {4}, {7, -7, 7, -7}),
             b = HostTensor::ofIntegers(plan::I64, {4}, {3, 3, -3, -3});
  EXPECT_THAT(run("Mod", {a, b}, {}, {4}, plan::I64).integers(), ElementsAre(1, 2, -2, -1));
  EXPECT_THAT(run("Div", {a, b}, {}, {4}, plan::I64).integers(), ElementsAre(2, -2, -2, 2));
  HostTensor c = HostTensor::ofIntegers(plan::U8, {2}, {200, 100});
  EXPECT_THAT(run("Add", {c, c}, {}, {2}, plan::U8).integers(), ElementsAre(144, 200));
  HostTensor zero = HostTensor::ofIntegers(plan::I64, {1}, {0});
  const HostTensor *operands[] = {&zero, &zero};
  TensorType type{plan::I64, {1}};
  EXPECT_THAT(evaluate("Div", operands, {}, {&type, 1}).status().message(), HasSubstr("by zero"));
}

TEST(Evaluator, MovesElements) {
  EXPECT_THAT(run("Transpose", {counting({2, 3})}, {{"perm", Ints{1, 0}}}, {3, 2}).reals(),
              ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(run("Broadcast", {counting({2})}, {{"shape", Ints{2, 2}}, {"dims", Ints{0}}}, {2, 2}).reals(),
              ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(
      run("Slice", {counting({3, 3})}, {{"starts", Ints{0, 1}}, {"sizes", Ints{2, 1}}, {"steps", Ints{2, 1}}}, {2, 1})
          .reals(),
      ElementsAre(1, 7));
  EXPECT_THAT(
      run("Pad", {counting({2})}, {{"low", Ints{1}}, {"high", Ints{0}}, {"interior", Ints{2}}, {"value", 9.0}}, {5})
          .reals(),
      ElementsAre(9, 0, 9, 9, 1));
  EXPECT_THAT(run("Concat", {counting({2, 1}), counting({2, 2})}, {{"axis", Ints{1}}}, {2, 3}).reals(),
              ElementsAre(0, 0, 1, 1, 2, 3));
  HostTensor indices = HostTensor::ofIntegers(plan::I64, {2}, {-1, 0});
  EXPECT_THAT(run("Gather", {counting({3, 2}), indices}, {{"axis", Ints{0}}}, {2, 2}).reals(), ElementsAre(4, 5, 0, 1));
  EXPECT_THAT(run("ScatterAdd", {HostTensor::ofIntegers(plan::I64, {2}, {1, 1}), counting({2, 2})},
                  {{"axis", Ints{0}}, {"rows", Ints{3}}}, {3, 2})
                  .reals(),
              ElementsAre(0, 0, 2, 4, 0, 0));
  EXPECT_THAT(
      run("CumSum", {counting({4})}, {{"axis", Ints{0}}, {"exclusive", Ints{}}, {"reverse", Ints{}}}, {4}).reals(),
      ElementsAre(6, 5, 3, 0));
  EXPECT_THAT(run("Iota", {}, {{"dim", Ints{1}}}, {2, 3}, plan::I64).integers(), ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(Evaluator, Reduces) {
  EXPECT_THAT(run("ReduceSum", {counting({2, 3})}, {{"axes", Ints{0}}}, {3}).reals(), ElementsAre(3, 5, 7));
  EXPECT_THAT(run("ReduceMax", {counting({2, 3})}, {{"axes", Ints{0, 1}}}, {}).reals(), ElementsAre(5));
  HostTensor withNaN = real({3}, {1, NAN, 0});
  EXPECT_TRUE(std::isnan(run("ReduceMin", {withNaN}, {{"axes", Ints{0}}}, {}).reals()[0]));
}

TEST(Evaluator, ContractsBatchFreeAndSummedIndices) {
  // numpy: np.einsum("bik,kbj->jbi", arange(8).reshape(2,2,2), arange(8).reshape(2,2,2))
  HostTensor y = run(
      "Contract", {counting({2, 2, 2}), counting({2, 2, 2})},
      {{"lhs_indices", Ints{0, 1, 2}}, {"rhs_indices", Ints{2, 0, 3}}, {"result_indices", Ints{3, 0, 1}}}, {2, 2, 2});
  EXPECT_THAT(y.reals(), ElementsAre(4, 12, 38, 54, 5, 17, 47, 67));
}

TEST(Evaluator, ConvolutionsAreAdjointToEachOther) {
  // <conv(x, w), dy> = <x, grad_input(dy, w)> = <w, grad_weight(x, dy)> for any x, w, dy
  Attributes a = {{"strides", Ints{2, 1}},
                  {"pads_begin", Ints{1, 0}},
                  {"pads_end", Ints{0, 2}},
                  {"dilations", Ints{1, 2}},
                  {"groups", Ints{2}}};
  std::vector<int64_t> xShape{2, 4, 5, 6}, wShape{6, 2, 3, 2}, yShape{2, 6, 2, 6};
  auto wavy = [](std::vector<int64_t> shape, double speed) {
    std::vector<double> values(elementCount(shape));
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(speed * double(i));
    return real(std::move(shape), values, plan::F64);
  };
  auto dot = [](const HostTensor &a, const HostTensor &b) {
    double sum = 0;
    for (int64_t i = 0; i < a.elements(); ++i) sum += a.as<double>()[i] * b.as<double>()[i];
    return sum;
  };
  HostTensor x = wavy(xShape, 1.3), w = wavy(wShape, 0.7), dy = wavy(yShape, 2.1);
  HostTensor y = run("Conv", {x, w}, a, yShape, plan::F64);
  Attributes input = a, weight = a;
  input["input_shape"] = xShape;
  weight["weight_shape"] = wShape;
  double expected = dot(y, dy);
  EXPECT_GT(std::fabs(expected), 1e-3);
  EXPECT_NEAR(dot(x, run("ConvGradInput", {dy, w}, input, xShape, plan::F64)), expected, 1e-9);
  EXPECT_NEAR(dot(w, run("ConvGradWeight", {x, dy}, weight, wShape, plan::F64)), expected, 1e-9);
  HostTensor ones = run("Conv", {counting({1, 1, 3}), real({1, 1, 2}, {1, 10})},
                        {{"strides", Ints{1}},
                         {"pads_begin", Ints{1}},
                         {"pads_end", Ints{0}},
                         {"dilations", Ints{1}},
                         {"groups", Ints{1}}},
                        {1, 1, 3});
  EXPECT_THAT(ones.reals(), ElementsAre(0, 10, 21));
}

TEST(Evaluator, Pools) {
  Attributes a = {{"kernel", Ints{2}},
                  {"strides", Ints{2}},
                  {"pads_begin", Ints{1}},
                  {"pads_end", Ints{0}},
                  {"dilations", Ints{1}}};
  HostTensor x = real({1, 1, 5}, {3, 1, 1, 5, 2});
  EXPECT_THAT(run("MaxPool", {x}, a, {1, 1, 3}).reals(), ElementsAre(3, 1, 5));
  EXPECT_THAT(run("MaxPoolGrad", {x, real({1, 1, 3}, {1, 2, 3})}, a, {1, 1, 5}).reals(), ElementsAre(1, 2, 0, 3, 0));
  a["include_pad"] = Ints{0};
  EXPECT_THAT(run("AveragePool", {x}, a, {1, 1, 3}).reals(), ElementsAre(3, 1, 3.5));
  a["include_pad"] = Ints{1};
  EXPECT_THAT(run("AveragePool", {x}, a, {1, 1, 3}).reals(), ElementsAre(1.5, 1, 3.5));
  a["input_shape"] = Ints{1, 1, 5};
  EXPECT_THAT(run("AveragePoolGrad", {real({1, 1, 3}, {2, 4, 6})}, a, {1, 1, 5}).reals(), ElementsAre(1, 2, 2, 3, 3));
}

TEST(Evaluator, RandomNumbersDependOnTheGlobalElementOnly) {
  // Random123's known answers for philox4x32-10, beside each other
  for (auto [key, counter] : {std::pair{0u, 0u}, {0xffffffffu, 0xffffffffu}}) {
    uint32_t words[4][2];
    for (auto &word : words) word[0] = word[1] = counter;
    words[0][1] ^= 1;
    philoxRounds(words, key, key);
    if (key == 0)
      EXPECT_THAT((std::array{words[0][0], words[1][0], words[2][0], words[3][0]}),
                  ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
    else
      EXPECT_THAT((std::array{words[0][0], words[1][0], words[2][0], words[3][0]}),
                  ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  }
  HostTensor key = HostTensor::ofIntegers(plan::I64, {2}, {42, 7});
  HostTensor whole = run("RandomUniform", {key}, {{"stream", Ints{3}}}, {64, 64});
  EXPECT_EQ(whole.as<float>()[65], philoxUniform(42, 7, 3, 65));
  std::array<float, 16> many;
  philoxUniforms(42, uint64_t(5) << 32 | 7, 3, (uint64_t(1) << 32) - 8, many); // over the end of a word
  for (size_t i = 0; i < many.size(); ++i)
    EXPECT_EQ(many[i], philoxUniform(42, uint64_t(5) << 32 | 7, 3, (uint64_t(1) << 32) - 8 + i));
  double mean = 0;
  for (double value : whole.reals()) mean += value / 4096;
  EXPECT_NEAR(mean, 0.5, 0.02);
}

TEST(Evaluator, RefusesWhatItCannotDo) {
  HostTensor x = counting({2}), y = counting({3});
  const HostTensor *operands[] = {&x, &y};
  TensorType type{plan::F32, {2}};
  EXPECT_THAT(evaluate("Add", operands, {}, {&type, 1}).status().message(), HasSubstr("shape"));
  EXPECT_THAT(evaluate("Softmax", operands, {}, {&type, 1}).status().message(), HasSubstr("Softmax"));
  EXPECT_THAT(evaluate("Transpose", {operands, 1}, {}, {&type, 1}).status().message(), HasSubstr("perm"));
  EXPECT_FALSE(canEvaluate("Softmax"));
  EXPECT_TRUE(canEvaluate("Contract"));
}

} // namespace
} // namespace cleave::runtime
