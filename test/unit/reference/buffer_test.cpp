// Memory that serves tensors one after the other, and what an operation finds in it.
#include "runtime/check/reference/buffer.h"
#include "runtime/check/reference/evaluator.h"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace cleave::runtime {
namespace {
constexpr size_t mebibyte = size_t(1) << 20;

TEST(Buffer, ServesTheNextOfItsSizeWhileReused) {
  const std::byte *memory = nullptr;
  {
    const ReusedBuffers reused;
    {
      memory = Buffer(mebibyte).data();
    }
    EXPECT_EQ(ReusedBuffers::keptBytes(), mebibyte);
    const Buffer again(mebibyte);
    EXPECT_EQ(again.data(), memory);
    EXPECT_EQ(ReusedBuffers::keptBytes(), 0);
  }
  {
    const Buffer after(mebibyte);
  }
  EXPECT_EQ(ReusedBuffers::keptBytes(), 0);
}

TEST(Buffer, KeepsNoMoreThanWasInUseAtOnce) {
  const ReusedBuffers reused;
  {
    const Buffer one(2 * mebibyte), two(3 * mebibyte);
  }
  EXPECT_EQ(ReusedBuffers::keptBytes(), 5 * mebibyte);
  const Buffer other(4 * mebibyte); // of another size: 4 in use, and at most 1 more may be kept
  EXPECT_EQ(ReusedBuffers::keptBytes(), 0);
}

TEST(Buffer, CopiesItsBytes) {
  const ReusedBuffers reused;
  Buffer a(3 * mebibyte);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::byte>(i % 251);
  Buffer b = a;
  EXPECT_TRUE(a == b);
  b[b.size() - 1] ^= std::byte(1);
  EXPECT_FALSE(a == b);
  a = b;
  EXPECT_TRUE(a == b);
}

// Every operation writes all of its result, wherever that lies: kept memory is full of what was there before.
TEST(Buffer, OperationsLeaveNothingOfWhatWasThere) {
  const ReusedBuffers reused;
  const Ints shape{1, 1, 512, 512};
  HostTensor x = HostTensor::ofReals(plan::F64, shape, std::vector<double>(512 * 512, 1));
  HostTensor half = HostTensor::ofReals(plan::F64, {1, 1, 256, 512}, std::vector<double>(256 * 512, 1));
  HostTensor pooled = HostTensor::ofReals(plan::F64, {1, 1, 256, 256}, std::vector<double>(256 * 256, 1));
  HostTensor tap = HostTensor::ofReals(plan::F64, {1, 1, 1, 1}, {1});
  HostTensor row = HostTensor::ofIntegers(plan::I64, {1}, {3});
  HostTensor rowOfX = HostTensor::ofReals(plan::F64, {1, 1, 1, 512}, std::vector<double>(512, 1));
  HostTensor isTrue = HostTensor::zeros(plan::BOOL, shape);
  HostTensor nothing = HostTensor::zeros(plan::F64, {512, 0});
  const Attributes window{{"kernel", Ints{2, 2}},      {"strides", Ints{2, 2}},   {"pads_begin", Ints{0, 0}},
                          {"pads_end", Ints{0, 0}},    {"dilations", Ints{1, 1}}, {"include_pad", Ints{0}},
                          {"input_shape", Ints(shape)}};
  Attributes strided{{"strides", Ints{2, 2}},   {"pads_begin", Ints{0, 0}}, {"pads_end", Ints{0, 0}},
                     {"dilations", Ints{1, 1}}, {"groups", Ints{1}},        {"input_shape", Ints(shape)}};
  struct Case {
    std::string op;
    std::vector<const HostTensor *> operands;
    Attributes attributes;
  };
  const std::vector<Case> cases = {
      {"Neg", {&x}, {}},
      {"Add", {&x, &x}, {}},
      {"Sum", {&x, &x}, {}},
      {"Where", {&isTrue, &x, &x}, {}},
      {"Reshape", {&x}, {}},
      {"Transpose", {&x}, {{"perm", Ints{0, 1, 3, 2}}}},
      {"Broadcast", {&row}, {{"dims", Ints{0}}, {"shape", Ints(shape)}}},
      {"Roll", {&x}, {{"dim", Ints{2}}, {"distance", Ints{5}}}},
      {"Concat", {&half, &half}, {{"axis", Ints{2}}}},
      {"Pad",
       {&half},
       {{"low", Ints{0, 0, 0, 0}}, {"high", Ints{0, 0, 1, 0}}, {"interior", Ints{0, 0, 1, 0}}, {"value", 0.0}}},
      {"ScatterAdd", {&row, &rowOfX}, {{"axis", Ints{2}}, {"rows", Ints{512}}}},
      {"CumSum", {&x}, {{"axis", Ints{2}}}},
      {"Conv",
       {&x, &tap},
       {{"strides", Ints{1, 1}},
        {"pads_begin", Ints{0, 0}},
        {"pads_end", Ints{0, 0}},
        {"dilations", Ints{1, 1}},
        {"groups", Ints{1}}}},
      {"ConvGradInput", {&pooled, &tap}, strided},
      {"MaxPoolGrad", {&x, &pooled}, window},
      {"AveragePoolGrad", {&pooled}, window},
      {"Contract",
       {&nothing, &nothing},
       {{"lhs_indices", Ints{0, 2}}, {"rhs_indices", Ints{1, 2}}, {"result_indices", Ints{0, 1}}}},
  };
  for (const Case &one : cases) {
    const TensorType type{plan::F64, one.op == "Contract" ? Ints{512, 512} : shape};
    {
      HostTensor before = HostTensor::unset(type.dtype, type.shape);
      std::fill_n(before.as<double>(), before.elements(), std::numeric_limits<double>::quiet_NaN());
    }
    auto result = evaluate(one.op, one.operands, one.attributes, {&type, 1});
    ASSERT_TRUE(result.isOk()) << result.status().message();
    const auto *values = result->front().as<double>();
    int64_t unwritten = 0;
    for (int64_t i = 0; i < result->front().elements(); ++i) unwritten += std::isnan(values[i]);
    EXPECT_EQ(unwritten, 0) << one.op;
  }
}

} // namespace
} // namespace cleave::runtime
