// Conversions between 16-bit floats and f32, in kernels and in the runtime: every one of the 65,536 patterns, and every
// boundary between two neighbours with the f32 numbers just below and above it. The reference goes through double.
#include "runtime/base/elements.h"
#include "runtime/plan/float_convert.h"
#include "test/unit/kernels/kernel_machine.h"
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace cleave::test {
namespace {

float widened(plan::DType type, uint16_t bits) {
  std::byte bytes[2];
  std::memcpy(bytes, &bits, 2);
  return static_cast<float>(runtime::loadFloat(type, bytes));
}
uint16_t narrowed(plan::DType type, float value) {
  std::byte bytes[2];
  runtime::storeFloat(type, value, bytes);
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, 2);
  return bits;
}
bool isNaN(plan::DType type, uint16_t bits) { return std::isnan(widened(type, bits)); }

// Every 16-bit number, the middle between it and the next, and the f32 numbers beside both.
std::vector<float> boundaries(plan::DType type) {
  std::vector<float> all;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float here = widened(type, static_cast<uint16_t>(bits));
    const float next = widened(type, static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((double(here) + double(next)) / 2); // exact in f32
    for (float at : {here, middle})
      for (int step : {-1, 0, 1}) all.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(at) + uint32_t(step)));
  }
  for (float one : {65504.0f, 65519.996f, 65520.0f, 65536.0f, 1e38f, 3.4e38f, INFINITY, NAN, 1e-45f, 1e-38f, 0.0f}) {
    all.push_back(one);
    all.push_back(-one);
  }
  return all;
}

const char *nameOf(plan::DType type) { return type == plan::BF16 ? "bf16" : "f16"; }

TEST(NarrowFloats, KernelsWidenEveryPattern) {
  for (plan::DType type : {plan::BF16, plan::F16})
    for (auto device : {KernelMachine::Device::Cpu, KernelMachine::Device::Gpu}) {
      KernelMachine machine(fmt::format(R"(func.func @f(%x: tensor<65536x{0}>) -> tensor<65536xf32> {{
        %0 = onnx.Cast %x {{to = f32}} : (tensor<65536x{0}>) -> tensor<65536xf32>
        return %0 : tensor<65536xf32>
      }})",
                                        nameOf(type)));
      ASSERT_TRUE(machine.compile(device));
      std::vector<HostTensor> inputs{HostTensor::zeros(type, {65536})};
      for (uint32_t bits = 0; bits < 0x10000; ++bits) std::memcpy(&inputs[0].data[2 * bits], &bits, 2);
      const std::vector<HostTensor> results = machine.runCompiled(inputs, 3, false);
      for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        uint32_t got = 0;
        std::memcpy(&got, &results[0].data[4 * bits], 4);
        const float expected = widened(type, static_cast<uint16_t>(bits));
        if (std::isnan(expected))
          ASSERT_TRUE(std::isnan(std::bit_cast<float>(got))) << nameOf(type) << " " << bits;
        else
          ASSERT_EQ(got, std::bit_cast<uint32_t>(expected)) << nameOf(type) << " " << bits;
      }
    }
}

TEST(NarrowFloats, KernelsRoundAtEveryBoundary) {
  for (plan::DType type : {plan::BF16, plan::F16})
    for (auto device : {KernelMachine::Device::Cpu, KernelMachine::Device::Gpu}) {
      const std::vector<float> values = boundaries(type);
      KernelMachine machine(fmt::format(R"(func.func @f(%x: tensor<{1}xf32>) -> tensor<{1}x{0}> {{
        %0 = onnx.Cast %x {{to = {0}}} : (tensor<{1}xf32>) -> tensor<{1}x{0}>
        return %0 : tensor<{1}x{0}>
      }})",
                                        nameOf(type), values.size()));
      ASSERT_TRUE(machine.compile(device));
      std::vector<HostTensor> inputs{HostTensor::zeros(plan::F32, {static_cast<int64_t>(values.size())})};
      std::memcpy(inputs[0].data.data(), values.data(), 4 * values.size());
      const std::vector<HostTensor> results = machine.runCompiled(inputs, 3, false);
      for (size_t i = 0; i < values.size(); ++i) {
        uint16_t got = 0;
        std::memcpy(&got, &results[0].data[2 * i], 2);
        if (std::isnan(values[i]))
          ASSERT_TRUE(isNaN(type, got)) << nameOf(type);
        else
          ASSERT_EQ(got, narrowed(type, values[i])) << nameOf(type) << " of " << values[i];
      }
    }
}

TEST(NarrowFloats, TheRuntimeConvertsAsKernelsDo) {
  for (plan::DType type : {plan::BF16, plan::F16}) {
    const bool isBrain = type == plan::BF16;
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      const float got = isBrain ? runtime::bf16ToFloat(half) : runtime::fp16ToFloat(half);
      if (isNaN(type, half))
        ASSERT_TRUE(std::isnan(got)) << bits;
      else
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(widened(type, half))) << bits;
    }
    for (float value : boundaries(type)) {
      const uint16_t got = isBrain ? runtime::floatToBf16(value) : runtime::floatToFp16(value);
      if (std::isnan(value))
        ASSERT_TRUE(isNaN(type, got));
      else
        ASSERT_EQ(got, narrowed(type, value)) << value;
    }
  }
}

} // namespace
} // namespace cleave::test
