#include "runtime/engine/comm/reduce.h"
#include "runtime/base/elements.h"
#include <algorithm>
#include <cstring>

namespace cleave::runtime {
namespace {

struct Bf16 {
  uint16_t bits;
  float value() const { return bf16ToFloat(bits); }
  static Bf16 of(float value) { return {floatToBf16(value)}; }
};
struct F16 {
  uint16_t bits;
  float value() const { return fp16ToFloat(bits); }
  static F16 of(float value) { return {floatToFp16(value)}; }
};

template <plan::Collective::Reduce reduce, typename T> T combine(T a, T b) {
  if constexpr (reduce == plan::Collective::MAX)
    return b > a || b != b ? b : a;
  else if constexpr (reduce == plan::Collective::MIN)
    return b < a || b != b ? b : a;
  else
    return a + b;
}

// Full-width types: a block of the output stays in cache while the members are added.
template <typename T, plan::Collective::Reduce reduce>
void reduceWide(std::byte *out, const std::byte *const *inputs, int64_t members, int64_t count) {
  auto *to = reinterpret_cast<T *>(out);
  constexpr int64_t block = 512;
  T sums[block];
  for (int64_t begin = 0; begin < count; begin += block) {
    int64_t width = std::min(block, count - begin);
    std::memcpy(sums, inputs[0] + begin * static_cast<int64_t>(sizeof(T)), static_cast<size_t>(width) * sizeof(T));
    for (int64_t m = 1; m < members; ++m) {
      auto *from = reinterpret_cast<const T *>(inputs[m]) + begin;
      for (int64_t i = 0; i < width; ++i) sums[i] = combine<reduce>(sums[i], from[i]);
    }
    std::memcpy(to + begin, sums, static_cast<size_t>(width) * sizeof(T));
  }
}

// Halves are summed in float and rounded once.
template <typename T, plan::Collective::Reduce reduce>
void reduceHalf(std::byte *out, const std::byte *const *inputs, int64_t members, int64_t count) {
  auto *to = reinterpret_cast<T *>(out);
  for (int64_t i = 0; i < count; ++i) {
    float sum = reinterpret_cast<const T *>(inputs[0])[i].value();
    for (int64_t m = 1; m < members; ++m) sum = combine<reduce>(sum, reinterpret_cast<const T *>(inputs[m])[i].value());
    to[i] = T::of(sum);
  }
}

template <plan::Collective::Reduce reduce> ReduceFunction forType(plan::DType dtype) {
  switch (dtype) {
  case plan::F32:
    return reduceWide<float, reduce>;
  case plan::F64:
    return reduceWide<double, reduce>;
  case plan::I64:
    return reduceWide<int64_t, reduce>;
  case plan::U64:
    return reduceWide<uint64_t, reduce>;
  case plan::I32:
    return reduceWide<int32_t, reduce>;
  case plan::U32:
    return reduceWide<uint32_t, reduce>;
  case plan::BF16:
    return reduceHalf<Bf16, reduce>;
  case plan::F16:
    return reduceHalf<F16, reduce>;
  case plan::BOOL: // any, all
    if constexpr (reduce == plan::Collective::SUM)
      return reduceWide<uint8_t, plan::Collective::MAX>;
    else
      return reduceWide<uint8_t, reduce>;
  case plan::I8:
    return reduceWide<int8_t, reduce>;
  case plan::U8:
    return reduceWide<uint8_t, reduce>;
  default:
    return nullptr;
  }
}

} // namespace

ReduceFunction reduceFunction(plan::DType dtype, plan::Collective::Reduce reduce) {
  switch (reduce) {
  case plan::Collective::SUM:
    return forType<plan::Collective::SUM>(dtype);
  case plan::Collective::MAX:
    return forType<plan::Collective::MAX>(dtype);
  case plan::Collective::MIN:
    return forType<plan::Collective::MIN>(dtype);
  default:
    return nullptr;
  }
}

} // namespace cleave::runtime
