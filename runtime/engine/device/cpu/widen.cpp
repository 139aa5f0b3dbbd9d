#include "runtime/engine/device/cpu/widen.h"
#include "runtime/base/elements.h"
#include "runtime/base/threads/parallel.h"
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
  for (int64_t i = 0; i < count; ++i) to[i] = bf16ToFloat(from[i]);
}
CLEAVE_FOR_EACH_CPU void widenHalves(const uint16_t *from, float *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = fp16ToFloat(from[i]);
}
CLEAVE_FOR_EACH_CPU void widenE4M3(const uint8_t *from, float *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = e4m3ToFloat(from[i]);
}
CLEAVE_FOR_EACH_CPU void widenE5M2(const uint8_t *from, float *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = e5m2ToFloat(from[i]);
}
CLEAVE_FOR_EACH_CPU void narrowToBrains(const float *from, uint16_t *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = floatToBf16(from[i]);
}
CLEAVE_FOR_EACH_CPU void narrowToHalves(const float *from, uint16_t *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = floatToFp16(from[i]);
}
CLEAVE_FOR_EACH_CPU void narrowToE4M3(const float *from, uint8_t *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = floatToE4M3(from[i]);
}
CLEAVE_FOR_EACH_CPU void narrowToE5M2(const float *from, uint8_t *to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = floatToE5M2(from[i]);
}

// How elements of one type are converted: many that lie together, or one after the other.
template <typename Bits> struct Element {
  void (*widenMany)(const Bits *, float *, int64_t);
  void (*narrowMany)(const float *, Bits *, int64_t);
  float (*widen)(Bits);
  Bits (*narrow)(float);
};
constexpr Element<uint16_t> brain{widenBrains, narrowToBrains, bf16ToFloat, floatToBf16};
constexpr Element<uint16_t> half{widenHalves, narrowToHalves, fp16ToFloat, floatToFp16};
constexpr Element<uint8_t> e4m3{widenE4M3, narrowToE4M3, e4m3ToFloat, floatToE4M3};
constexpr Element<uint8_t> e5m2{widenE5M2, narrowToE5M2, e5m2ToFloat, floatToE5M2};

template <typename Bits>
void convertRow(const Element<Bits> &element, bool widens, Bits *narrow, int64_t narrowStride, float *wide,
                int64_t wideStride, int64_t count) {
  if (narrowStride == 1 && wideStride == 1)
    return widens ? element.widenMany(narrow, wide, count) : element.narrowMany(wide, narrow, count);
  for (int64_t i = 0; i < count; ++i)
    if (widens)
      wide[i * wideStride] = element.widen(narrow[i * narrowStride]);
    else
      narrow[i * narrowStride] = element.narrow(wide[i * wideStride]);
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

void widenElements(plan::DType dtype, const std::byte *from, float *to, int64_t count) {
  auto with = [&]<typename Bits>(const Element<Bits> &element) {
    element.widenMany(reinterpret_cast<const Bits *>(from), to, count);
  };
  if (dtype == plan::F32) return void(std::copy_n(reinterpret_cast<const float *>(from), count, to));
  if (dtype == plan::F8E4M3) return with(e4m3);
  if (dtype == plan::F8E5M2) return with(e5m2);
  with(dtype == plan::BF16 ? brain : half);
}
void narrowElements(plan::DType dtype, const float *from, std::byte *to, int64_t count) {
  auto with = [&]<typename Bits>(const Element<Bits> &element) {
    element.narrowMany(from, reinterpret_cast<Bits *>(to), count);
  };
  if (dtype == plan::F32) return void(std::copy_n(from, count, reinterpret_cast<float *>(to)));
  if (dtype == plan::F8E4M3) return with(e4m3);
  if (dtype == plan::F8E5M2) return with(e5m2);
  with(dtype == plan::BF16 ? brain : half);
}

Conversion::Conversion(plan::DType dtype, Direction direction, std::byte *address, size_t scratchOffset,
                       std::vector<int64_t> sizes, std::vector<int64_t> strides, std::vector<int64_t> wideStrides)
    : dtype(dtype), direction(direction), narrow(address), offset(scratchOffset) {
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

void Conversion::convert(int64_t from, int64_t to, int64_t count) const {
  auto row = [&]<typename Bits>(const Element<Bits> &element) {
    convertRow(element, direction == Widen, reinterpret_cast<Bits *>(narrow) + from, this->row.narrow, wide + to,
               this->row.wide, count);
  };
  if (dtype == plan::F8E4M3) return row(e4m3);
  if (dtype == plan::F8E5M2) return row(e5m2);
  row(dtype == plan::BF16 ? brain : half);
}

Status Conversion::run() {
  if (outer.empty()) {
    parallelFor(row.size, grainElements,
                [&](int64_t begin, int64_t end) { convert(begin * row.narrow, begin * row.wide, end - begin); });
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
      convert(from, to, row.size);
    }
  });
  return Status::ok();
}

} // namespace cleave::runtime
