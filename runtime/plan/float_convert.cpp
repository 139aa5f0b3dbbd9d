#include "runtime/plan/float_convert.h"
#include "runtime/base/elements.h"
#include "runtime/plan/dtype.h"
#include <cmath>
#include <cstring>

namespace cleave::runtime {
namespace {

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
    return fp16ToFloat(load<uint16_t>(from));
  case plan::BF16:
    return bf16ToFloat(load<uint16_t>(from));
  case plan::F8E4M3:
    return e4m3ToFloat(load<uint8_t>(from));
  case plan::F8E5M2:
    return e5m2ToFloat(load<uint8_t>(from));
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
    return store(to, doubleToFp16(value));
  case plan::BF16:
    return store(to, doubleToBf16(value));
  case plan::F8E4M3:
    return store(to, doubleToE4M3(value));
  case plan::F8E5M2:
    return store(to, doubleToE5M2(value));
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
