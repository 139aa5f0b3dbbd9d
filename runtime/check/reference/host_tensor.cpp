#include "runtime/check/reference/host_tensor.h"
#include "runtime/plan/float_convert.h"
#include <bit>
#include <cmath>
#include <cstring>

namespace cleave::runtime {

HostTensor HostTensor::unset(DType dtype, std::vector<int64_t> shape) {
  HostTensor result{dtype, std::move(shape), {}};
  result.data = Buffer(static_cast<size_t>(result.elements() * byteSize(dtype)));
  return result;
}
HostTensor HostTensor::zeros(DType dtype, std::vector<int64_t> shape) {
  HostTensor result = unset(dtype, std::move(shape));
  const int64_t element = byteSize(dtype);
  parallelFor(result.elements(), elementsAtATime, [&](int64_t begin, int64_t end) {
    std::memset(result.data.data() + begin * element, 0, static_cast<size_t>((end - begin) * element));
  });
  return result;
}
HostTensor HostTensor::ofReals(DType dtype, std::vector<int64_t> shape, const std::vector<double> &values) {
  HostTensor result = unset(dtype, std::move(shape));
  result.setReals(values.data());
  return result;
}
HostTensor HostTensor::ofIntegers(DType dtype, std::vector<int64_t> shape, const std::vector<int64_t> &values) {
  HostTensor result = unset(dtype, std::move(shape));
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

// The nearest f32 whose last bit tells of what it lacks, so that rounding it again is rounding the value.
float roundedToOdd(double value) {
  const auto single = static_cast<float>(value);
  auto bits = std::bit_cast<uint32_t>(single);
  if (double(single) == value || !std::isfinite(single)) return single;
  if (std::fabs(double(single)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1);
}

template <typename Wide> void widen(const HostTensor &t, Wide *out) {
  int64_t count = t.elements();
  bool plain = visitElementType(t.dtype, [&](auto zero) {
    const auto *from = t.as<decltype(zero)>();
    forEachElement(count, [&](int64_t i) {
      if constexpr (std::is_same_v<Wide, int64_t>)
        out[i] = toInteger<int64_t>(from[i]);
      else
        out[i] = static_cast<Wide>(from[i]);
    });
  });
  if (plain) return;
  forEachElement(count, [&](int64_t i) {
    out[i] = static_cast<Wide>(loadFloat(t.dtype, t.as<std::byte>() + i * byteSize(t.dtype)));
  });
}
template <typename Wide> std::vector<Wide> widened(const HostTensor &t) {
  std::vector<Wide> out(static_cast<size_t>(t.elements()));
  widen(t, out.data());
  return out;
}

template <typename Wide> void narrow(HostTensor &t, const Wide *values) {
  int64_t count = t.elements();
  auto store = [&](auto zero) {
    using Element = decltype(zero);
    auto *to = t.as<Element>();
    forEachElement(count, [&](int64_t i) {
      if constexpr (std::is_floating_point_v<Element>)
        to[i] = static_cast<Element>(values[i]);
      else
        to[i] = t.dtype == plan::BOOL ? values[i] != 0 : toInteger<Element>(values[i]);
    });
  };
  if (visitElementType(t.dtype, store)) return;
  forEachElement(count, [&](int64_t i) {
    const auto value = static_cast<double>(values[i]);
    storeFloat(t.dtype, t.dtype == plan::BF16 ? roundedToOdd(value) : value, t.as<std::byte>() + i * byteSize(t.dtype));
  });
}
} // namespace

std::vector<double> HostTensor::reals() const { return widened<double>(*this); }
std::vector<int64_t> HostTensor::integers() const { return widened<int64_t>(*this); }
void HostTensor::setReals(const double *values) { narrow(*this, values); }
void HostTensor::setIntegers(const int64_t *values) { narrow(*this, values); }

HostTensor HostTensor::converted(DType to) const {
  if (to == dtype) return *this;
  HostTensor result = unset(to, shape);
  if (isFloat(dtype) && to == plan::F64)
    widen(*this, result.as<double>());
  else if (dtype == plan::F64)
    result.setReals(as<double>());
  else if (isFloat(dtype))
    result.setReals(converted(plan::F64).as<double>());
  else if (dtype == plan::U64)
    narrow(result, as<uint64_t>());
  else
    result.setIntegers(integers().data());
  return result;
}

} // namespace cleave::runtime
