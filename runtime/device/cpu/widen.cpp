#include "runtime/device/cpu/widen.h"
#include "runtime/plan/narrow_floats.h"
#include "runtime/threads/parallel.h"
#include <algorithm>

#if defined(__x86_64__)
#define CLEAVE_FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLEAVE_FOR_EACH_CPU
#endif

namespace cleave::runtime {
namespace {

constexpr int64_t grainElements = 1 << 14;

CLEAVE_FOR_EACH_CPU void widenBrains(const uint16_t *from, float *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = floatOfBrain(from[i]);
}
CLEAVE_FOR_EACH_CPU void widenHalves(const uint16_t *from, float *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = floatOfHalf(from[i]);
}
CLEAVE_FOR_EACH_CPU void narrowToBrains(const float *from, uint16_t *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = brainOfFloat(from[i]);
}
CLEAVE_FOR_EACH_CPU void narrowToHalves(const float *from, uint16_t *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = halfOfFloat(from[i]);
}

} // namespace

bool multipliesNatively(plan::DType dtype) {
  auto has = [](dnnl::cpu_isa isa) {
    const auto bits = static_cast<unsigned>(isa);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
  };
  if (dtype == plan::BF16) return has(dnnl::cpu_isa::avx512_core_bf16);
  if (dtype == plan::F16) return has(dnnl::cpu_isa::avx512_core_fp16);
  return dtype == plan::F32;
}

Conversion::Conversion(plan::DType dtype, Direction direction, std::byte *address, size_t scratchOffset,
                       std::vector<int64_t> sizes, std::vector<int64_t> strides, std::vector<int64_t> wideStrides)
    : dtype(dtype), direction(direction), narrow(reinterpret_cast<uint16_t *>(address)), offset(scratchOffset) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 1 && (strides[d] != 0 || wideStrides[d] != 0))
      outer.push_back({sizes[d], strides[d], wideStrides[d]});
  std::ranges::sort(outer, [](const Dimension &a, const Dimension &b) { return a.wide > b.wide; });
  // Neighbours in both are one longer row.
  for (size_t d = outer.size(); d-- > 1;)
    if (outer[d - 1].wide == outer[d].wide * outer[d].size && outer[d - 1].narrow == outer[d].narrow * outer[d].size) {
      outer[d - 1] = {outer[d - 1].size * outer[d].size, outer[d].narrow, outer[d].wide};
      outer.erase(outer.begin() + static_cast<std::ptrdiff_t>(d));
    }
  if (outer.empty()) return;
  row = outer.back();
  outer.pop_back();
}

void Conversion::convert(uint16_t *half, float *single, int64_t count) const {
  const bool isBrain = dtype == plan::BF16;
  if (row.narrow == 1 && row.wide == 1) {
    if (direction == Widen) return (isBrain ? widenBrains : widenHalves)(half, single, count);
    return (isBrain ? narrowToBrains : narrowToHalves)(single, half, count);
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t &bits = half[i * row.narrow];
    float &value = single[i * row.wide];
    if (direction == Widen)
      value = isBrain ? floatOfBrain(bits) : floatOfHalf(bits);
    else
      bits = isBrain ? brainOfFloat(value) : halfOfFloat(value);
  }
}

Status Conversion::run() {
  if (outer.empty()) {
    parallelFor(row.size, grainElements, [&](int64_t begin, int64_t end) {
      convert(narrow + begin * row.narrow, wide + begin * row.wide, end - begin);
    });
    return Status::ok();
  }
  int64_t rows = 1;
  for (const Dimension &dim : outer) rows *= dim.size;
  parallelFor(rows, std::max<int64_t>(1, grainElements / row.size), [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      int64_t rest = number, from = 0, to = 0;
      for (size_t d = outer.size(); d-- > 0; rest /= outer[d].size) {
        from += rest % outer[d].size * outer[d].narrow;
        to += rest % outer[d].size * outer[d].wide;
      }
      convert(narrow + from, wide + to, row.size);
    }
  });
  return Status::ok();
}

} // namespace cleave::runtime
