// Conversions of f64 and f32 to floats of 16 and 8 bits round once: at every number of each format, at every middle
// between two neighbours, and at the f64 just below and above them. The numbers follow from the formula of each format,
// the expected code from their order. (Kernels' conversions: test/unit/kernels/narrow_floats_test.cpp.)
#include "runtime/base/elements.h"
#include <cmath>
#include <gtest/gtest.h>

namespace cleave::runtime {
namespace {

struct Format {
  const char *name;
  int bits, fraction, bias;
  int largest; // its code; the next one is infinity where the format does not saturate
  bool saturates;
  double (*widen)(int code);
  int (*narrow)(double);
  int (*narrowSingle)(float);

  int sign() const { return 1 << (bits - 1); }
  // Of a code without its sign: (1 or 0).fraction * 2^(exponent - bias).
  double number(int code) const {
    const int exponent = code >> fraction, rest = code & ((1 << fraction) - 1);
    return std::ldexp(std::ldexp(rest, -fraction) + (exponent > 0), std::max(exponent, 1) - bias);
  }
};

const Format formats[] = {
    {"bf16", 16, 7, 127, 0x7f7f, false, [](int code) { return double(bf16ToFloat(uint16_t(code))); },
     [](double x) { return int(doubleToBf16(x)); }, [](float x) { return int(floatToBf16(x)); }},
    {"fp16", 16, 10, 15, 0x7bff, false, [](int code) { return double(fp16ToFloat(uint16_t(code))); },
     [](double x) { return int(doubleToFp16(x)); }, [](float x) { return int(floatToFp16(x)); }},
    {"e4m3", 8, 3, 7, 0x7e, true, [](int code) { return double(e4m3ToFloat(uint8_t(code))); },
     [](double x) { return int(doubleToE4M3(x)); }, [](float x) { return int(floatToE4M3(x)); }},
    {"e5m2", 8, 2, 15, 0x7b, true, [](int code) { return double(e5m2ToFloat(uint8_t(code))); },
     [](double x) { return int(doubleToE5M2(x)); }, [](float x) { return int(floatToE5M2(x)); }},
};

void expectCode(const Format &format, double value, int code) {
  for (double sign : {1.0, -1.0}) {
    const int expected = code | (sign < 0 ? format.sign() : 0);
    EXPECT_EQ(format.narrow(sign * value), expected) << format.name << " of " << sign * value;
    if (const auto single = static_cast<float>(value); double(single) == value)
      EXPECT_EQ(format.narrowSingle(static_cast<float>(sign) * single), expected)
          << format.name << " of " << sign * value;
  }
}

TEST(Elements, WidenEveryCode) {
  for (const Format &format : formats)
    for (int code = 0; code <= format.largest; ++code) {
      ASSERT_EQ(format.widen(code), format.number(code)) << format.name << " " << code;
      ASSERT_EQ(format.widen(code | format.sign()), -format.number(code)) << format.name << " " << code;
    }
}

TEST(Elements, RoundOnceAtEveryBoundary) {
  for (const Format &format : formats)
    for (int code = 0; code <= format.largest && !HasFailure(); ++code) {
      const double here = format.number(code);
      const int next = code == format.largest && format.saturates ? code : code + 1;
      const double middle = (here + format.number(code + 1)) / 2;
      expectCode(format, here, code);
      expectCode(format, std::nextafter(here, INFINITY), code);
      expectCode(format, std::nextafter(middle, 0), code);
      expectCode(format, middle, code % 2 == 0 ? code : next);
      expectCode(format, std::nextafter(middle, INFINITY), next);
    }
}

TEST(Elements, FarNumbersAndNone) {
  for (const Format &format : formats) {
    const int beyond = format.saturates ? format.largest : format.largest + 1;
    for (double value : {1e39, 1e300, double(INFINITY)}) expectCode(format, value, beyond);
    expectCode(format, 1e-60, 0);
    expectCode(format, 5e-324, 0);
    EXPECT_TRUE(std::isnan(format.widen(format.narrow(NAN)))) << format.name;
    EXPECT_TRUE(std::isnan(format.widen(format.narrowSingle(NAN)))) << format.name;
  }
}

// By way of the nearest f32, 1 + 2^-8, it would be a tie, and the even one below.
TEST(Elements, DoublesAreNotRoundedTwice) {
  EXPECT_EQ(doubleToBf16(1 + 0x1p-8 + 0x1p-40), 0x3f81);
  EXPECT_EQ(floatToBf16(static_cast<float>(1 + 0x1p-8 + 0x1p-40)), 0x3f80);
  EXPECT_EQ(doubleToFp16(1 + 0x1p-11 + 0x1p-40), 0x3c01);
  EXPECT_EQ(doubleToE4M3(1 + 0x1p-4 + 0x1p-40), 0x39);
  EXPECT_EQ(doubleToE5M2(1 + 0x1p-3 + 0x1p-40), 0x3d);
}

} // namespace
} // namespace cleave::runtime
