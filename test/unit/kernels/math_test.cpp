// The polynomials of math_expansion.h against libm in double precision, over the range of floats.
#include "test/unit/kernels/kernel_machine.h"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace cleave::test {
namespace {

// The largest error in units of the last place of a float result that is at least 2^-126.
using Device = KernelMachine::Device;
void checkUlps(const char *op, double (*truth)(double), double low, double high, double limit,
               Device device = Device::Cpu) {
  constexpr int64_t count = 1 << 18;
  std::string type = "tensor<" + std::to_string(count) + "xf32>";
  KernelMachine machine("func.func @f(%x: " + type + ") -> " + type + " {\n  %0 = onnx." + op + " %x : (" + type +
                        ") -> " + type + "\n  return %0 : " + type + "\n}");
  ASSERT_TRUE(machine.compile(device));
  std::vector<HostTensor> inputs = machine.randomInputs(1, low, high);
  float *x = inputs[0].as<float>();
  // Small magnitudes too: every exponent.
  for (int64_t i = 0; i < count / 4; ++i) {
    float value = std::ldexp(x[i] == 0 ? 1.f : x[i] / std::max(std::abs(low), std::abs(high)), -(int)(i % 100));
    if (value >= low && value <= high) x[i] = value;
  }
  std::vector<HostTensor> results = machine.runCompiled(inputs);
  const float *y = results[0].as<float>();
  double worst = 0;
  float at = 0;
  for (int64_t i = 0; i < count; ++i) {
    double want = truth(x[i]);
    if (std::abs(want) < 0x1p-124 || !std::isfinite(want)) continue;
    double ulp = std::ldexp(1.0, std::ilogb(static_cast<float>(want)) - 23);
    double error = std::abs(y[i] - want) / ulp;
    if (!(error <= worst)) {
      worst = error;
      at = x[i];
    }
  }
  EXPECT_LE(worst, limit) << op << " at " << at;
  std::printf("%-8s largest error %.2f ulp\n", op, worst);
}

TEST(Math, Exp) { checkUlps("Exp", std::exp, -86, 88.7, 1.5); }
TEST(Math, Log) { checkUlps("Log", std::log, 1e-30, 1e6, 1.5); }
TEST(Math, Log1p) { checkUlps("Log1p", std::log1p, -0.999, 1e4, 3); }
TEST(Math, Erf) { checkUlps("Erf", std::erf, -6, 6, 7); }
TEST(Math, Tanh) { checkUlps("Tanh", std::tanh, -10, 10, 6); }

// A GPU's polynomials multiply and add at once.
TEST(Math, OnAGpu) {
  checkUlps("Exp", std::exp, -86, 88.7, 1.5, Device::Gpu);
  checkUlps("Log", std::log, 1e-30, 1e6, 1.5, Device::Gpu);
  checkUlps("Log1p", std::log1p, -0.999, 1e4, 3, Device::Gpu);
  checkUlps("Erf", std::erf, -6, 6, 7, Device::Gpu);
  checkUlps("Tanh", std::tanh, -10, 10, 6, Device::Gpu);
}

TEST(Math, Ends) {
  KernelMachine machine(
      R"(func.func @f(%x: tensor<20xf32>) -> (tensor<20xf32>, tensor<20xf32>, tensor<20xf32>, tensor<20xf32>) {
    %0 = onnx.Exp %x : (tensor<20xf32>) -> tensor<20xf32>
    %1 = onnx.Log %x : (tensor<20xf32>) -> tensor<20xf32>
    %2 = onnx.Tanh %x : (tensor<20xf32>) -> tensor<20xf32>
    %3 = onnx.Erf %x : (tensor<20xf32>) -> tensor<20xf32>
    return %0, %1, %2, %3 : tensor<20xf32>, tensor<20xf32>, tensor<20xf32>, tensor<20xf32>
  })");
  ASSERT_TRUE(machine.compile());
  float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0,    -0.f,  infinity, -infinity, NAN,   1,     -1,    89,     1000, -88,
                          -104, -1000, 1e-40f,   1e-38f,    1e38f, 88.7f, 3e38f, -3e38f, 0.5f, 2};
  std::vector<HostTensor> inputs = {HostTensor::zeros(plan::F32, {20})};
  std::copy(x.begin(), x.end(), inputs[0].as<float>());
  std::vector<HostTensor> results = machine.runCompiled(inputs);
  double (*truth[])(double) = {std::exp, std::log, std::tanh, std::erf};
  for (int f = 0; f < 4; ++f)
    for (size_t i = 0; i < x.size(); ++i) {
      float want = truth[f](x[i]), have = results[f].as<float>()[i];
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(have)) << "function " << f << " of " << x[i] << " is " << have;
      } else if (std::isinf(want)) {
        EXPECT_EQ(have, want) << "function " << f << " of " << x[i];
      } else {
        EXPECT_NEAR(have, want, std::abs(want) * 1e-6 + 2e-38) << "function " << f << " of " << x[i];
      }
    }
}

} // namespace
} // namespace cleave::test
