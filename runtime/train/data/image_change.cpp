#include "runtime/train/data/image_change.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace cleave::runtime {
namespace {

// Pillow's Image.blend of one byte: from `one` towards `other` and beyond.
uint8_t blended(int one, int other, float part) {
  const float value = static_cast<float>(one) + part * static_cast<float>(other - one);
  return static_cast<uint8_t>(value <= 0 ? 0 : value >= 255 ? 255 : value);
}

struct Hsv {
  uint8_t hue, saturation, value;
};

// Pillow's convert("HSV") of a pixel.
Hsv toHsv(const uint8_t *rgb) {
  const uint8_t r = rgb[0], g = rgb[1], b = rgb[2], most = std::max({r, g, b}), least = std::min({r, g, b});
  if (most == least) return {0, 0, most};
  const auto range = static_cast<float>(most - least);
  const float saturation = range / static_cast<float>(most);
  const float red = static_cast<float>(most - r) / range, green = static_cast<float>(most - g) / range,
              blue = static_cast<float>(most - b) / range;
  float hue = r == most   ? blue - green
              : g == most ? static_cast<float>(2.0 + red - blue)
                          : static_cast<float>(4.0 + green - red);
  hue = static_cast<float>(std::fmod(hue / 6.0 + 1.0, 1.0));
  return {static_cast<uint8_t>(std::clamp(static_cast<int>(hue * 255.0), 0, 255)),
          static_cast<uint8_t>(std::clamp(static_cast<int>(saturation * 255.0), 0, 255)), most};
}

// And back.
void fromHsv(const Hsv &hsv, uint8_t *rgb) {
  const uint8_t v = hsv.value;
  if (hsv.saturation == 0) {
    rgb[0] = rgb[1] = rgb[2] = v;
    return;
  }
  const int sector = static_cast<int>(std::floor(static_cast<float>(hsv.hue) * 6.0 / 255.0));
  const auto part = static_cast<float>(static_cast<float>(hsv.hue) * 6.0 / 255.0 - static_cast<float>(sector));
  const auto saturation = static_cast<float>(static_cast<float>(hsv.saturation) / 255.0);
  auto byte = [&](double share) {
    return static_cast<uint8_t>(std::clamp(static_cast<int>(std::round(static_cast<float>(v) * share)), 0, 255));
  };
  const uint8_t p = byte(1.0 - saturation), q = byte(1.0 - saturation * part),
                t = byte(1.0 - saturation * (1.0 - part));
  const uint8_t all[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
  std::memcpy(rgb, all[sector % 6], 3);
}

} // namespace

ImageBox resizedCropOf(const ResizedCrop &crop, ImageSize image, Draws &draws) {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  for (int trial = 0; trial < 10; ++trial) {
    const double area = height * width * draws.uniform(crop.scale[0], crop.scale[1]);
    const double ratio = std::exp(draws.uniform(std::log(crop.ratio[0]), std::log(crop.ratio[1])));
    const double w = std::nearbyint(std::sqrt(area * ratio)), h = std::nearbyint(std::sqrt(area / ratio));
    if (!(w > 0 && w <= width && h > 0 && h <= height)) continue;
    ImageBox box{0, 0, {static_cast<int64_t>(h), static_cast<int64_t>(w)}};
    box.top = draws.below(image.height - box.size.height + 1);
    box.left = draws.below(image.width - box.size.width + 1);
    return box;
  }
  ImageSize size = image;
  if (width / height < crop.ratio[0])
    size.height = std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(width / crop.ratio[0])));
  else if (width / height > crop.ratio[1])
    size.width = std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(height * crop.ratio[1])));
  return {(image.height - size.height) / 2, (image.width - size.width) / 2, size};
}

std::vector<ColourChange> colourChangesOf(const Augment &augment, Draws &draws) {
  std::vector<ColourChange> changes;
  for (auto [colour, range] :
       {std::pair(Colour::Brightness, augment.brightness), std::pair(Colour::Contrast, augment.contrast),
        std::pair(Colour::Saturation, augment.saturation)})
    if (range > 0) changes.push_back({colour, draws.uniform(std::max(0.0, 1 - range), 1 + range)});
  if (augment.hue > 0) changes.push_back({Colour::Hue, draws.uniform(-augment.hue, augment.hue)});
  for (size_t i = changes.size(); i > 1; --i)
    std::swap(changes[i - 1], changes[static_cast<size_t>(draws.below(static_cast<int64_t>(i)))]);
  return changes;
}

Image cropBox(const Image &image, const ImageBox &box) {
  Image out{box.size, std::vector<uint8_t>(static_cast<size_t>(box.size.height * box.size.width * 3))};
  const int64_t left = std::max<int64_t>(0, box.left), right = std::min(image.size.width, box.left + box.size.width);
  for (int64_t row = 0; row < box.size.height; ++row)
    if (const int64_t from = box.top + row; from >= 0 && from < image.size.height && left < right)
      std::memcpy(out.pixels.data() + (row * box.size.width + left - box.left) * 3,
                  image.pixels.data() + (from * image.size.width + left) * 3, static_cast<size_t>((right - left) * 3));
  return out;
}

Image flipped(const Image &image) {
  Image out = image;
  for (int64_t row = 0; row < image.size.height; ++row)
    for (int64_t i = 0; i < image.size.width; ++i)
      std::memcpy(out.pixels.data() + (row * image.size.width + i) * 3,
                  image.pixels.data() + (row * image.size.width + image.size.width - 1 - i) * 3, 3);
  return out;
}

Image recoloured(const Image &image, const ColourChange &change) {
  Image out = image;
  const auto pixels = static_cast<int64_t>(image.pixels.size() / 3);
  if (change.colour == Colour::Hue) {
    const auto turn = static_cast<uint8_t>(static_cast<int32_t>(change.factor * 255));
    for (int64_t i = 0; i < pixels; ++i) {
      Hsv hsv = toHsv(image.pixels.data() + 3 * i);
      hsv.hue = static_cast<uint8_t>(hsv.hue + turn);
      fromHsv(hsv, out.pixels.data() + 3 * i);
    }
    return out;
  }
  int64_t sum = 0;
  if (change.colour == Colour::Contrast)
    for (int64_t i = 0; i < pixels; ++i) sum += grey(image.pixels.data() + 3 * i);
  const int mean = pixels == 0 ? 0 : static_cast<int>(static_cast<double>(sum) / static_cast<double>(pixels) + 0.5);
  for (int64_t i = 0; i < pixels; ++i) {
    const uint8_t *from = image.pixels.data() + 3 * i;
    const int base = change.colour == Colour::Saturation ? grey(from) : change.colour == Colour::Contrast ? mean : 0;
    for (int channel = 0; channel < 3; ++channel)
      out.pixels[static_cast<size_t>(3 * i + channel)] =
          blended(base, from[channel], static_cast<float>(change.factor));
  }
  return out;
}

std::vector<uint8_t> augmentedPlanes(const uint8_t *planes, int64_t channels, ImageSize size, const Augment &augment,
                                     const Draws &draws) {
  const int64_t plane = size.height * size.width;
  Image image{size, std::vector<uint8_t>(static_cast<size_t>(3 * plane))};
  for (int64_t i = 0; i < plane; ++i)
    for (int64_t colour = 0; colour < 3; ++colour) // of grey all are equal, and stay so
      image.pixels[static_cast<size_t>(3 * i + colour)] = planes[colour % channels * plane + i];
  image = augmented(image, augment, size, draws, [](const Image &whole) { return whole; });
  std::vector<uint8_t> out(static_cast<size_t>(channels * plane));
  for (int64_t i = 0; i < plane; ++i)
    for (int64_t channel = 0; channel < channels; ++channel)
      out[static_cast<size_t>(channel * plane + i)] = image.pixels[static_cast<size_t>(3 * i + channel)];
  return out;
}

} // namespace cleave::runtime
