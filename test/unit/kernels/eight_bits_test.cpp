// Conversions between floats of 8 bits and f32, in kernels and in the runtime: all 256 codes, and every boundary
// between two neighbours with the f32 numbers just below and above it. The reference decodes by the formula of OCP's
// specification and finds the nearest of all codes.
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

struct Format {
  plan::DType type;
  const char *name;
  int fraction, bias, largest; // bits, of the exponent, the code of the largest number
  float (*widen)(uint8_t);
  uint8_t (*narrow)(float);
};
const Format formats[] = {
    {plan::F8E4M3, "f8E4M3FN", 3, 7, 0x7e, runtime::e4m3ToFloat, runtime::floatToE4M3},
    {plan::F8E5M2, "f8E5M2", 2, 15, 0x7b, runtime::e5m2ToFloat, runtime::floatToE5M2},
};

// The value of a code without its sign: (1 or 0).fraction * 2^(exponent - bias); what lies past the largest is not
// asked for.
double numberOf(const Format &format, int code) {
  const int exponent = code >> format.fraction, fraction = code & ((1 << format.fraction) - 1);
  return std::ldexp(std::ldexp(fraction, -format.fraction) + (exponent > 0), std::max(exponent, 1) - format.bias);
}
// Past the largest number e5m2 has infinity, then no numbers; e4m3 has only the latter.
bool isNaN(const Format &format, int code) {
  return (code & 0x7f) > format.largest && !(format.fraction == 2 && (code & 0x7f) == 0x7c);
}

int nearest(const Format &format, float value) {
  const double size = std::min(std::abs(double(value)), numberOf(format, format.largest));
  int best = 0;
  for (int code = 1; code <= format.largest; ++code) {
    const double apart = std::abs(numberOf(format, code) - size), least = std::abs(numberOf(format, best) - size);
    if (apart < least || (apart == least && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(value) ? 0x80 : 0);
}

std::vector<float> boundariesOf(const Format &format) {
  std::vector<float> all{0, 1e-45f, 1e-38f, 1e-10f, 1e30f, 3.4e38f, INFINITY, NAN, 464, 480, 61440, 65536};
  for (int code = 0; code < format.largest; ++code) {
    const auto here = static_cast<float>(numberOf(format, code));
    const auto middle = static_cast<float>((numberOf(format, code) + numberOf(format, code + 1)) / 2);
    for (float at : {here, middle})
      for (int step : {-1, 0, 1})
        if (at > 0) all.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(at) + uint32_t(step)));
  }
  for (size_t i = all.size(); i-- > 0;) all.push_back(-all[i]);
  return all;
}

void expectCode(const Format &format, float value, uint8_t got, const char *by) {
  if (std::isnan(value))
    EXPECT_TRUE(isNaN(format, got)) << format.name << " of NaN by " << by << " is " << int(got);
  else
    EXPECT_EQ(int(got), nearest(format, value)) << format.name << " of " << value << " by " << by;
}
void expectNumber(const Format &format, int code, float got, const char *by) {
  if (isNaN(format, code)) {
    EXPECT_TRUE(std::isnan(got)) << format.name << " " << code << " by " << by;
    return;
  }
  const double size = (code & 0x7f) > format.largest ? INFINITY : numberOf(format, code & 0x7f);
  EXPECT_EQ(got, static_cast<float>(code & 0x80 ? -size : size)) << format.name << " " << code << " by " << by;
  EXPECT_EQ(std::signbit(got), (code & 0x80) != 0) << format.name << " " << code << " by " << by;
}

TEST(EightBits, TheRuntimeConvertsEveryCode) {
  for (const Format &format : formats)
    for (int code = 0; code < 256; ++code) {
      const auto byte = static_cast<std::byte>(code);
      expectNumber(format, code, format.widen(static_cast<uint8_t>(code)), "bits");
      expectNumber(format, code, static_cast<float>(runtime::loadFloat(format.type, &byte)), "double");
    }
}

TEST(EightBits, TheRuntimeRoundsAtEveryBoundary) {
  for (const Format &format : formats)
    for (float value : boundariesOf(format)) {
      std::byte byte{};
      runtime::storeFloat(format.type, value, &byte);
      expectCode(format, value, static_cast<uint8_t>(byte), "double");
      expectCode(format, value, format.narrow(value), "bits");
    }
}

TEST(EightBits, KernelsConvertEveryCode) {
  for (const Format &format : formats)
    for (auto device : {KernelMachine::Device::Cpu, KernelMachine::Device::Gpu}) {
      KernelMachine machine(fmt::format(R"(func.func @f(%x: tensor<256x{0}>) -> tensor<256xf32> {{
        %0 = onnx.Cast %x {{to = f32}} : (tensor<256x{0}>) -> tensor<256xf32>
        return %0 : tensor<256xf32>
      }})",
                                        format.name));
      ASSERT_TRUE(machine.compile(device));
      std::vector<HostTensor> inputs{HostTensor::zeros(format.type, {256})};
      for (int code = 0; code < 256; ++code) inputs[0].data[size_t(code)] = static_cast<std::byte>(code);
      const std::vector<HostTensor> results = machine.runCompiled(inputs, 3, false);
      for (int code = 0; code < 256; ++code) expectNumber(format, code, results[0].as<float>()[code], "kernel");
    }
}

TEST(EightBits, KernelsRoundAtEveryBoundary) {
  for (const Format &format : formats)
    for (auto device : {KernelMachine::Device::Cpu, KernelMachine::Device::Gpu}) {
      const std::vector<float> values = boundariesOf(format);
      KernelMachine machine(fmt::format(R"(func.func @f(%x: tensor<{1}xf32>) -> tensor<{1}x{0}> {{
        %0 = onnx.Cast %x {{to = {0}}} : (tensor<{1}xf32>) -> tensor<{1}x{0}>
        return %0 : tensor<{1}x{0}>
      }})",
                                        format.name, values.size()));
      ASSERT_TRUE(machine.compile(device));
      std::vector<HostTensor> inputs{HostTensor::zeros(plan::F32, {static_cast<int64_t>(values.size())})};
      std::memcpy(inputs[0].data.data(), values.data(), 4 * values.size());
      const std::vector<HostTensor> results = machine.runCompiled(inputs, 3, false);
      for (size_t i = 0; i < values.size(); ++i)
        expectCode(format, values[i], static_cast<uint8_t>(results[0].data[i]), "kernel");
    }
}

} // namespace
} // namespace cleave::test
