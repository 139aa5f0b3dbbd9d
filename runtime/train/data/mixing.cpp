#include "runtime/train/data/mixing.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numbers>

namespace cleave::runtime {
namespace {

double normal(Draws &draws) { // Box and Muller
  const double radius = std::sqrt(-2 * std::log(1 - draws.uniform()));
  return radius * std::cos(2 * std::numbers::pi * draws.uniform());
}

// The logarithm of a number of the gamma distribution (Marsaglia and Tsang, 2000).
double logGamma(double shape, Draws &draws) {
  if (shape < 1) return logGamma(shape + 1, draws) + std::log(1 - draws.uniform()) / shape;
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(draws), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - draws.uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

double beta(double alpha, Draws &draws) {
  const double one = logGamma(alpha, draws), other = logGamma(alpha, draws);
  return 1 / (1 + std::exp(other - one));
}

// The height and width of a sample, its last dimensions.
std::pair<int64_t, int64_t> sidesOf(const Field &field) {
  if (field.shape.size() != 3) return {1, 1};
  return {field.shape[1], field.shape[2]};
}

bool isMixed(const Field &field) { return !field.withoutSamples; }

std::pair<int64_t, int64_t> sidesOfImages(const std::vector<Field> &fields) {
  const auto image = std::ranges::find_if(fields, [](const Field &one) { return !one.label && isMixed(one); });
  return image == fields.end() ? std::pair<int64_t, int64_t>(1, 1) : sidesOf(*image);
}

} // namespace

Status Mixing::check(const DataSettings &settings, const std::vector<Field> &fields) {
  const char *key = settings.mixup > 0 ? "mixup" : "cutmix";
  bool hasLabels = false;
  const auto sides = sidesOfImages(fields);
  for (const Field &field : fields) {
    const std::string what =
        fmt::format("'{}' is {} [{}]", field.name, name(field.dtype), fmt::join(field.shape, ", "));
    if (field.label && field.dtype != plan::F32)
      return inputError(
          fmt::format("data.{}: mixes labels, and class numbers cannot be mixed: {}; give the loss labels of "
                      "float32, one for each class (loss.labels: {{dtype: float32, shape: [batch, C]}})",
                      key, what));
    hasLabels |= field.label;
    if (!field.label && isMixed(field) && field.dtype != plan::F32)
      return inputError(fmt::format("data.{}: mixes inputs of float32; {}", key, what));
    if (!field.label && isMixed(field) && settings.cutmix > 0 && field.shape.size() != 3)
      return inputError(fmt::format("data.cutmix: is for images [channels, height, width]; {}", what));
    if (!field.label && isMixed(field) && settings.cutmix > 0 && sidesOf(field) != sides)
      return inputError(fmt::format("data.cutmix: {}, and the images before it are of another size", what));
  }
  if (hasLabels) return Status::ok();
  return inputError(fmt::format("data.{}: mixes labels, and the loss has none: it must read labels", key));
}

Mix Mixing::mixOf(uint64_t turn, int64_t height, int64_t width) const {
  Draws draws(seed, mixingStream, turn);
  const bool cuts = cutmix > 0 && (mixup == 0 || draws.uniform() < 0.5);
  Mix mix{beta(cuts ? cutmix : mixup, draws), cuts};
  if (!cuts) return mix;
  const double half = 0.5 * std::sqrt(1 - mix.part);
  const int64_t x = draws.below(width), y = draws.below(height);
  const auto w = static_cast<int64_t>(half * static_cast<double>(width)),
             h = static_cast<int64_t>(half * static_cast<double>(height));
  mix.box = {std::max<int64_t>(0, y - h), std::min(height, y + h), std::max<int64_t>(0, x - w), std::min(width, x + w)};
  mix.part = 1 - static_cast<double>((mix.box.bottom - mix.box.top) * (mix.box.right - mix.box.left)) /
                     static_cast<double>(height * width);
  return mix;
}

Status Mixing::fill(const Dataset &from, size_t field, std::span<const int64_t> batch, uint64_t turn, size_t begin,
                    size_t count, std::byte *out) const {
  const Field &of = from.fields()[field];
  CLEAVE_RETURN_IF_ERROR(from.fillTraining(field, batch.subspan(begin, count), turn + begin, out));
  if (!isMixed(of) || count == 0) return Status::ok();
  // The samples before: the one before the first, and all but the last.
  const auto bytes = static_cast<size_t>(of.bytes());
  const size_t before = (begin + batch.size() - 1) % batch.size();
  std::vector<std::byte> others(count * bytes);
  CLEAVE_RETURN_IF_ERROR(from.fillTraining(field, batch.subspan(before, 1), turn + before, others.data()));
  std::memcpy(others.data() + bytes, out, (count - 1) * bytes);

  const auto [height, width] = sidesOfImages(from.fields());
  const Mix mix = mixOf(turn, height, width);
  const auto own = static_cast<float>(mix.part), rest = static_cast<float>(1 - mix.part);
  for (size_t i = 0; i < count * bytes / sizeof(float); ++i) {
    float value, other;
    std::memcpy(&value, out + sizeof(float) * i, sizeof value);
    std::memcpy(&other, others.data() + sizeof(float) * i, sizeof other);
    const auto column = static_cast<int64_t>(i) % width, row = static_cast<int64_t>(i) / width % height;
    if (of.label || !mix.isCut)
      value = other * rest + value * own;
    else if (row >= mix.box.top && row < mix.box.bottom && column >= mix.box.left && column < mix.box.right)
      value = other;
    std::memcpy(out + sizeof(float) * i, &value, sizeof value);
  }
  return Status::ok();
}

} // namespace cleave::runtime
