#include "runtime/plan/float_convert.h"
#include "runtime/base/narrow_floats.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace cleave::runtime {
namespace {

// A narrow float: bits of its fraction, exponent of its smallest normal number, what larger numbers become (of a half
// the number whose bits are infinity's), its NaN.
struct Format {
  int fraction, least;
  double largest;
  unsigned nan;
};
constexpr Format half{10, -14, 65536, 0x7e00}, e4m3{3, -6, 448, 0x7f}, e5m2{2, -14, 57344, 0x7f};

template <typename Bits> Bits narrowed(const Format &type, double value) {
  const unsigned sign = std::signbit(value) ? 1u << (8 * sizeof(Bits) - 1) : 0;
  if (std::isnan(value)) return static_cast<Bits>(sign | type.nan);
  const double magnitude = std::min(std::fabs(value), type.largest);
  const int exponent = magnitude < std::ldexp(1, type.least) ? type.least : std::ilogb(magnitude);
  // In units of the last place; a carry runs into the exponent as it should.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, type.fraction - exponent)));
  return static_cast<Bits>(sign | static_cast<unsigned>(units + ((exponent - type.least) << type.fraction)));
}

template <typename Bits> Bits load(const std::byte *from) {
  Bits value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename Bits> void store(std::byte *to, Bits value) { std::memcpy(to, &value, sizeof value); }

} // namespace

double loadFloat(plan::DType dtype, const std::byte *from) {
  switch (dtype) {
  case plan::F32:
    return load<float>(from);
  case plan::F64:
    return load<double>(from);
  case plan::F16:
    return floatOfHalf(load<uint16_t>(from));
  case plan::BF16:
    return floatOfBrain(load<uint16_t>(from));
  case plan::F8E4M3:
    return floatOfE4M3(load<uint8_t>(from));
  case plan::F8E5M2:
    return floatOfE5M2(load<uint8_t>(from));
  default:
    return NAN;
  }
}

void storeFloat(plan::DType dtype, double value, std::byte *to) {
  switch (dtype) {
  case plan::F32:
    return store(to, static_cast<float>(value));
  case plan::F64:
    return store(to, value);
  case plan::F16:
    return store(to, narrowed<uint16_t>(half, value));
  case plan::BF16:
    return store(to, brainOfFloat(static_cast<float>(value)));
  case plan::F8E4M3:
    return store(to, narrowed<uint8_t>(e4m3, value));
  case plan::F8E5M2:
    return store(to, narrowed<uint8_t>(e5m2, value));
  default:
    return;
  }
}

double loadNumber(plan::DType dtype, const std::byte *from) {
  double number = 0;
  auto visit = [&](auto zero) { number = static_cast<double>(load<decltype(zero)>(from)); };
  return visitElementType(dtype, visit) ? number : loadFloat(dtype, from);
}

int64_t loadInteger(plan::DType dtype, const std::byte *from) {
  int64_t number = 0;
  auto visit = [&](auto zero) { number = static_cast<int64_t>(load<decltype(zero)>(from)); };
  visitElementType(dtype, visit);
  return number;
}

void storeNumber(plan::DType dtype, double value, std::byte *to) {
  if (isFloat(dtype)) return storeFloat(dtype, value, to);
  const auto whole = static_cast<int64_t>(value);
  std::memcpy(to, &whole, static_cast<size_t>(byteSize(dtype))); // little-endian
}

} // namespace cleave::runtime
