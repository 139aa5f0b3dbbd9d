#include "runtime/check/reference/host_tensor.h"
#include "runtime/plan/float_convert.h"
#include <bit>
#include <cmath>
#include <cstring>

namespace cleave::runtime {

float halfToFloat(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY)
                    : exponent     ? std::ldexp(float(mantissa + 1024), exponent - 25)
                                   : std::ldexp(float(mantissa), -24);
  return bits & 0x8000 ? -magnitude : magnitude;
}

uint16_t floatToHalf(double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
  // in units of the last place; nearbyint rounds ties to even, a carry runs into the exponent as it should
  int64_t units = std::llrint(std::ldexp(magnitude, 10 - exponent));
  return sign | uint16_t(magnitude < 0x1p-14 ? units : units + (int64_t(exponent + 14) << 10));
}

float bfloatToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

uint16_t floatToBfloat(double value) {
  if (std::isnan(value)) return 0x7fc0;
  // Round to odd in f32 first, so that the second rounding sees what the first one dropped.
  float single = static_cast<float>(value);
  uint32_t bits = std::bit_cast<uint32_t>(single);
  if (double(single) != value && std::isfinite(single)) {
    if (std::fabs(double(single)) > std::fabs(value)) --bits;
    bits |= 1;
  }
  uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  return uint16_t(rounded >> 16);
}

HostTensor HostTensor::zeros(DType dtype, std::vector<int64_t> shape) {
  HostTensor result{dtype, std::move(shape), {}};
  result.data.resize(result.elements() * byteSize(dtype));
  return result;
}
HostTensor HostTensor::ofReals(DType dtype, std::vector<int64_t> shape, const std::vector<double> &values) {
  HostTensor result = zeros(dtype, std::move(shape));
  result.setReals(values.data());
  return result;
}
HostTensor HostTensor::ofIntegers(DType dtype, std::vector<int64_t> shape, const std::vector<int64_t> &values) {
  HostTensor result = zeros(dtype, std::move(shape));
  result.setIntegers(values.data());
  return result;
}

namespace {
template <typename To, typename From> To toInteger(From value) {
  if constexpr (std::is_floating_point_v<From>) {
    if (std::isnan(value)) return 0;
    if (value >= 0x1p63)
      return value < 0x1p64 ? static_cast<To>(static_cast<uint64_t>(value)) : static_cast<To>(INT64_MAX);
    if (value < -0x1p63) return static_cast<To>(INT64_MIN);
    return static_cast<To>(static_cast<int64_t>(value));
  } else {
    return static_cast<To>(value);
  }
}

// each(pointer to the elements) for the types that C++ has; false for the others (bool is no number to C++ here).
template <typename Tensor, typename Each> bool visitPlain(Tensor &t, Each each) {
  switch (t.dtype) {
  case plan::F32:
    return each(t.template as<float>()), true;
  case plan::F64:
    return each(t.template as<double>()), true;
  case plan::I8:
    return each(t.template as<int8_t>()), true;
  case plan::I16:
    return each(t.template as<int16_t>()), true;
  case plan::I32:
    return each(t.template as<int32_t>()), true;
  case plan::I64:
    return each(t.template as<int64_t>()), true;
  case plan::U8:
    return each(t.template as<uint8_t>()), true;
  case plan::U16:
    return each(t.template as<uint16_t>()), true;
  case plan::U32:
    return each(t.template as<uint32_t>()), true;
  case plan::U64:
    return each(t.template as<uint64_t>()), true;
  default:
    return false;
  }
}

template <typename Wide> std::vector<Wide> widen(const HostTensor &t) {
  int64_t count = t.elements();
  std::vector<Wide> out(count);
  bool plain = visitPlain(t, [&](const auto *from) {
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<Wide, int64_t>)
        out[i] = toInteger<int64_t>(from[i]);
      else
        out[i] = static_cast<Wide>(from[i]);
    }
  });
  if (plain) return out;
  for (int64_t i = 0; i < count; ++i) {
    if (t.dtype == plan::BOOL) out[i] = static_cast<Wide>(t.as<uint8_t>()[i]);
    if (t.dtype == plan::F16) out[i] = static_cast<Wide>(halfToFloat(t.as<uint16_t>()[i]));
    if (t.dtype == plan::BF16) out[i] = static_cast<Wide>(bfloatToFloat(t.as<uint16_t>()[i]));
    if (isFp8BitFloat(t.dtype)) out[i] = static_cast<Wide>(loadFloat(t.dtype, t.as<std::byte>() + i));
  }
  return out;
}

template <typename Wide> void narrow(HostTensor &t, const Wide *values) {
  int64_t count = t.elements();
  bool plain = visitPlain(t, [&](auto *to) {
    using Element = std::remove_pointer_t<decltype(to)>;
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_floating_point_v<Element>)
        to[i] = static_cast<Element>(values[i]);
      else
        to[i] = toInteger<Element>(values[i]);
    }
  });
  if (plain) return;
  for (int64_t i = 0; i < count; ++i) {
    if (t.dtype == plan::BOOL) t.as<uint8_t>()[i] = values[i] != 0;
    if (t.dtype == plan::F16) t.as<uint16_t>()[i] = floatToHalf(static_cast<double>(values[i]));
    if (t.dtype == plan::BF16) t.as<uint16_t>()[i] = floatToBfloat(static_cast<double>(values[i]));
    if (isFp8BitFloat(t.dtype)) storeFloat(t.dtype, static_cast<double>(values[i]), t.as<std::byte>() + i);
  }
}
} // namespace

std::vector<double> HostTensor::reals() const { return widen<double>(*this); }
std::vector<int64_t> HostTensor::integers() const { return widen<int64_t>(*this); }
void HostTensor::setReals(const double *values) { narrow(*this, values); }
void HostTensor::setIntegers(const int64_t *values) { narrow(*this, values); }

HostTensor HostTensor::converted(DType to) const {
  if (to == dtype) return *this;
  HostTensor result = zeros(to, shape);
  if (isFloat(dtype))
    result.setReals(reals().data());
  else if (dtype == plan::U64) {
    const uint64_t *from = as<uint64_t>();
    narrow(result, from);
  } else {
    result.setIntegers(integers().data());
  }
  return result;
}

} // namespace cleave::runtime
