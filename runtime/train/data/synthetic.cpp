
#include "runtime/base/philox.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/train/data/kinds.h"
#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

constexpr int64_t defaultSamples = 65536;
constexpr uint64_t syntheticStream = 0x64617461; // the field's number is added
constexpr uint64_t lengthStream = 0x6c656e67;

// A step of a small model does not last much longer than drawing its samples one number at a time.
using Uniforms = std::array<float, 16>;
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void draw(uint64_t seed, uint64_t sample, uint64_t stream, uint64_t first, Uniforms &uniforms) {
  philoxUniforms(seed, sample, stream, first, uniforms);
}

class SyntheticDataset : public Dataset {
public:
  SyntheticDataset(std::vector<Field> fields, bool shuffled, uint64_t seed, int64_t samples,
                   std::vector<int64_t> lengths)
      : Dataset(std::move(fields), shuffled), seed(seed), samples(samples), lengths(std::move(lengths)) {}
  int64_t size() const override { return samples; }
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    const Field &of = fieldList[field];
    const int64_t count = of.elements(), unit = byteSize(of.dtype);
    Uniforms uniforms;
    for (int64_t index : indices)
      for (int64_t first = 0; first < count; first += std::ssize(uniforms)) {
        draw(seed, static_cast<uint64_t>(index), syntheticStream + field, static_cast<uint64_t>(first), uniforms);
        const int64_t here = std::min<int64_t>(std::ssize(uniforms), count - first);
        for (int64_t i = 0; i < here; ++i, out += unit) write(of, uniforms[static_cast<size_t>(i)], out);
      }
    return Status::ok();
  }

  // Samples are as long as one of the lengths, all alike often.
  int64_t lengthOf(int64_t sample) const override {
    if (lengths.empty()) return 0;
    Uniforms uniforms;
    draw(seed, static_cast<uint64_t>(sample), lengthStream, 0, uniforms);
    return lengths[static_cast<size_t>(uniforms[0] * static_cast<float>(lengths.size()))];
  }
  std::unique_ptr<Dataset> atLength(std::vector<Field> fields) const override {
    return std::make_unique<SyntheticDataset>(std::move(fields), shuffled, seed, samples, lengths);
  }

private:
  static void write(const Field &field, float uniform, std::byte *out) {
    if (isFloat(field.dtype))
      return storeFloat(field.dtype, field.label ? float(uniform >= 0.5f) : 2.0f * uniform - 1.0f, out);
    int64_t bound = field.upperBound > 0 ? field.upperBound : 2;
    auto value = static_cast<int64_t>(static_cast<double>(uniform) * static_cast<double>(bound));
    std::memcpy(out, &value, static_cast<size_t>(byteSize(field.dtype)));
  }

  uint64_t seed;
  int64_t samples;
  std::vector<int64_t> lengths;
};

} // namespace

Result<DataSource> openSynthetic(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed) {
  DataSource source;
  int64_t samples = settings.samples > 0 ? settings.samples : defaultSamples;
  source.train = std::make_unique<SyntheticDataset>(fields, settings.shuffle, seed, samples, settings.lengths);
  return source;
}

} // namespace cleave::runtime
