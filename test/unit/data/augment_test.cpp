#include "runtime/train/data/array.h"
#include "runtime/train/data/image_change.h"
#include "runtime/train/data/mixing.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave::runtime {
namespace {

using testing::HasSubstr;

// What torchvision made of a Pillow image (test/golden/augment/make_augment.py).
class AugmentTest : public testing::Test {
protected:
  void SetUp() override {
    auto read = readArrays(GOLDEN "/augment/changes.npz");
    ASSERT_TRUE(read.isOk()) << read.status().message();
    arrays = std::move(*read);
  }
  template <typename Number> std::vector<Number> numbers(const std::string &name) const {
    const Array &array = arrays.at(name);
    std::vector<Number> result(array.bytes.size() / sizeof(Number));
    std::memcpy(result.data(), array.bytes.data(), array.bytes.size());
    return result;
  }
  // Of an array [height, width, 3], or number `i` of one [n, height, width, 3].
  Image image(const std::string &name, size_t i = 0) const {
    const std::vector<int64_t> &shape = arrays.at(name).shape;
    const int64_t height = shape[shape.size() - 3], width = shape[shape.size() - 2], size = height * width * 3;
    const std::vector<uint8_t> all = numbers<uint8_t>(name);
    const auto begin = all.begin() + static_cast<int64_t>(i) * size;
    return {{height, width}, {begin, begin + size}};
  }
  static void expectSame(const Image &one, const Image &other, const std::string &what) {
    EXPECT_EQ(one.size, other.size) << what;
    EXPECT_EQ(one.pixels, other.pixels) << what;
  }
  std::map<std::string, Array> arrays;
};

TEST_F(AugmentTest, ImagesAreTorchvisions) {
  const Image whole = image("image");
  const std::vector<int64_t> crops = numbers<int64_t>("crops"), paddings = numbers<int64_t>("paddings");
  ASSERT_EQ(crops.size(), 30u);
  for (size_t i = 0; i < 5; ++i) {
    const int64_t *at = crops.data() + 6 * i;
    expectSame(resize(cropBox(whole, {at[0], at[1], {at[2], at[3]}}), {at[4], at[5]}), image(fmt::format("crop{}", i)),
               fmt::format("crop {}", i));
  }
  for (size_t i = 0; i < 4; ++i) {
    const int64_t *at = paddings.data() + 3 * i;
    expectSame(cropBox(whole, {at[1] - at[0], at[2] - at[0], whole.size}), image(fmt::format("padded{}", i)),
               fmt::format("padding {}", i));
  }
  expectSame(flipped(whole), image("flipped"), "flip");
  for (auto [name, colour] : {std::pair("brightness", Colour::Brightness), std::pair("contrast", Colour::Contrast),
                              std::pair("saturation", Colour::Saturation), std::pair("hue", Colour::Hue)}) {
    const std::vector<double> factors = numbers<double>(fmt::format("{}_factors", name));
    ASSERT_GE(factors.size(), 8u);
    for (const char *of : {"image", "colours"})
      for (size_t i = 0; i < factors.size(); ++i)
        expectSame(recoloured(image(of), {colour, factors[i]}), image(fmt::format("{}_{}", name, of), i),
                   fmt::format("{} {} of {}", name, factors[i], of));
  }
}

struct Moments {
  double least = 1e300, most = -1e300, sum = 0, squares = 0;
  int64_t count = 0;
  void add(double value) {
    least = std::min(least, value), most = std::max(most, value);
    sum += value, squares += value * value, ++count;
  }
  double mean() const { return sum / static_cast<double>(count); }
  double variance() const { return squares / static_cast<double>(count) - mean() * mean(); }
};

// The ranges of RandomResizedCrop.get_params and ColorJitter.get_params, and the means of their uniform numbers.
TEST(Augment, NumbersAreSpreadAsTorchvisions) {
  const ResizedCrop crop{{0.2, 0.6}, {0.75, 4.0 / 3}};
  const int64_t height = 1000, width = 1200, count = 20000;
  Moments area, ratio, top, left;
  for (uint64_t turn = 0; turn < count; ++turn) {
    Draws draws(3, augmentStream, turn);
    const ImageBox box = resizedCropOf(crop, {height, width}, draws);
    const auto h = static_cast<double>(box.size.height), w = static_cast<double>(box.size.width);
    area.add(h * w / (height * width));
    ratio.add(std::log(w / h));
    top.add(static_cast<double>(box.top) / static_cast<double>(height - box.size.height));
    left.add(static_cast<double>(box.left) / static_cast<double>(width - box.size.width));
  }
  const double five = 5 / std::sqrt(static_cast<double>(count));
  EXPECT_NEAR(area.least, 0.2, 2e-3);
  EXPECT_NEAR(area.most, 0.6, 2e-3);
  EXPECT_NEAR(area.mean(), 0.4, five * 0.4 / std::sqrt(12) + 1e-4); // at these numbers every try fits
  EXPECT_NEAR(ratio.least, std::log(0.75), 5e-3);
  EXPECT_NEAR(ratio.most, std::log(4.0 / 3), 5e-3);
  EXPECT_NEAR(ratio.mean(), 0, five * 2 * std::log(4.0 / 3) / std::sqrt(12));
  EXPECT_NEAR(ratio.variance(), std::pow(2 * std::log(4.0 / 3), 2) / 12, 1e-3);
  for (const Moments &place : {top, left}) {
    EXPECT_NEAR(place.least, 0, 1e-2);
    EXPECT_NEAR(place.most, 1, 1e-2);
    EXPECT_NEAR(place.mean(), 0.5, five / std::sqrt(12) + 1e-3);
  }
  // Nothing fits: the middle, of the nearest ratio.
  Draws draws(3, augmentStream, 0);
  const ImageBox strip = resizedCropOf({{1, 1}, {0.75, 4.0 / 3}}, {10, 100}, draws);
  EXPECT_EQ(strip.size, (ImageSize{10, 13}));
  EXPECT_EQ(strip.left, 43);

  Augment jitter;
  jitter.brightness = 0.4, jitter.contrast = 1.5, jitter.hue = 0.1;
  std::map<Colour, Moments> factors;
  std::map<std::vector<Colour>, int64_t> orders;
  for (uint64_t turn = 0; turn < count; ++turn) {
    Draws some(4, augmentStream, turn);
    std::vector<Colour> order;
    for (const ColourChange &change : colourChangesOf(jitter, some)) {
      factors[change.colour].add(change.factor);
      order.push_back(change.colour);
    }
    ++orders[order];
  }
  EXPECT_EQ(factors.count(Colour::Saturation), 0u);
  for (auto [colour, low, high] : {std::tuple(Colour::Brightness, 0.6, 1.4), std::tuple(Colour::Contrast, 0.0, 2.5),
                                   std::tuple(Colour::Hue, -0.1, 0.1)}) {
    const Moments &found = factors.at(colour);
    EXPECT_EQ(found.count, count);
    EXPECT_TRUE(found.least >= low && found.least < low + 0.001 * (high - low)) << low;
    EXPECT_TRUE(found.most < high && found.most > high - 0.001 * (high - low)) << high;
    EXPECT_NEAR(found.mean(), (low + high) / 2, five * (high - low) / std::sqrt(12));
  }
  EXPECT_EQ(orders.size(), 6u);
  for (const auto &[order, times] : orders)
    EXPECT_NEAR(static_cast<double>(times), count / 6.0, 5 * std::sqrt(count * 5 / 36.0));
}

// Beta(alpha, alpha) has mean 1/2 and variance 1 / (4 (2 alpha + 1)).
TEST(Mixing, PartsAreOfTheBetaDistribution) {
  for (double alpha : {0.1, 0.2, 1.0, 3.0}) {
    DataSettings settings;
    settings.mixup = alpha;
    const Mixing mixing(settings, 5);
    Moments part;
    for (uint64_t turn = 0; turn < 20000; ++turn) part.add(mixing.mixOf(turn, 1, 1).part);
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_TRUE(part.least >= 0 && part.most <= 1);
    EXPECT_NEAR(part.mean(), 0.5, 5 * std::sqrt(variance / 20000)) << alpha;
    EXPECT_NEAR(part.variance(), variance, 5 * 0.5 * std::sqrt(variance / 20000)) << alpha;
  }
  DataSettings settings;
  settings.cutmix = 1;
  const Mixing cuts(settings, 5);
  Moments part, middle;
  for (uint64_t turn = 0; turn < 20000; ++turn) {
    const Mix mix = cuts.mixOf(turn, 40, 60);
    ASSERT_TRUE(mix.isCut);
    const auto &[top, bottom, left, right] = mix.box;
    ASSERT_TRUE(top >= 0 && top <= bottom && bottom <= 40 && left >= 0 && left <= right && right <= 60);
    EXPECT_NEAR(mix.part, 1 - static_cast<double>((bottom - top) * (right - left)) / (40 * 60), 1e-12);
    part.add(mix.part);
    if (right > left) middle.add(static_cast<double>(left + right) / 120);
  }
  EXPECT_NEAR(middle.mean(), 0.5, 0.02);
  EXPECT_GT(part.mean(), 0.5); // boxes are cut off at the borders
  settings.mixup = 1;
  int64_t cut = 0;
  for (uint64_t turn = 0; turn < 20000; ++turn) cut += Mixing(settings, 5).mixOf(turn, 8, 8).isCut;
  EXPECT_NEAR(static_cast<double>(cut), 10000, 5 * std::sqrt(5000.0));
}

// Images whose numbers are their sample's, of [1, 4, 4], and labels of [3].
class Numbered : public Dataset {
public:
  Numbered() : Dataset({{"x", plan::F32, {1, 4, 4}}, {"labels", plan::F32, {3}, true}}, false) {}
  int64_t size() const override { return 6; }
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    for (int64_t index : indices)
      for (int64_t i = 0; i < fieldList[field].elements(); ++i, out += sizeof(float)) {
        const auto value = static_cast<float>(field == 0 ? index : i == index % 3);
        std::memcpy(out, &value, sizeof value);
      }
    return Status::ok();
  }
};

TEST(Mixing, EachSampleWithTheOneBeforeIt) {
  const Numbered data;
  const std::vector<int64_t> batch = {5, 2, 0, 4};
  for (bool cuts : {false, true}) {
    DataSettings settings;
    (cuts ? settings.cutmix : settings.mixup) = 1;
    EXPECT_TRUE(Mixing::check(settings, data.fields()).isOk());
    const Mixing mixing(settings, 9);
    bool hasBox = false;
    for (uint64_t turn = 100; turn < 140; turn += 4) {
      const Mix mix = mixing.mixOf(turn, 4, 4);
      std::vector<float> x(4 * 16), labels(4 * 3);
      ASSERT_TRUE(mixing.fill(data, 0, batch, turn, 0, 4, reinterpret_cast<std::byte *>(x.data())).isOk());
      ASSERT_TRUE(mixing.fill(data, 1, batch, turn, 0, 4, reinterpret_cast<std::byte *>(labels.data())).isOk());
      for (size_t i = 0; i < 4; ++i) {
        const auto own = static_cast<float>(batch[i]), other = static_cast<float>(batch[(i + 3) % 4]);
        for (int64_t k = 0; k < 16; ++k) {
          const bool inBox =
              k / 4 >= mix.box.top && k / 4 < mix.box.bottom && k % 4 >= mix.box.left && k % 4 < mix.box.right;
          hasBox |= inBox;
          const double wanted = cuts ? (inBox ? other : own) : mix.part * own + (1 - mix.part) * other;
          EXPECT_NEAR(x[i * 16 + static_cast<size_t>(k)], wanted, 1e-6);
        }
        for (int64_t k = 0; k < 3; ++k)
          EXPECT_NEAR(labels[i * 3 + static_cast<size_t>(k)],
                      mix.part * (batch[i] % 3 == k) + (1 - mix.part) * (batch[(i + 3) % 4] % 3 == k), 1e-6);
      }
      // In pieces, as threads and microbatches read them.
      std::vector<float> piece(2 * 16);
      for (size_t begin : {0, 1, 2}) {
        ASSERT_TRUE(mixing.fill(data, 0, batch, turn, begin, 2, reinterpret_cast<std::byte *>(piece.data())).isOk());
        EXPECT_TRUE(std::equal(piece.begin(), piece.end(), x.begin() + static_cast<int64_t>(begin) * 16));
      }
    }
    EXPECT_EQ(hasBox, cuts);
  }
}

TEST(Mixing, RefusesWhatCannotBeMixed) {
  DataSettings settings;
  settings.cutmix = 1;
  const Field image{"x", plan::F32, {3, 8, 8}}, labels{"labels", plan::F32, {10}, true},
      classes{"labels", plan::I64, {}, true};
  EXPECT_THAT(Mixing::check(settings, {image, classes}).message(),
              HasSubstr("class numbers cannot be mixed: 'labels' is i64 []; give"));
  EXPECT_THAT(Mixing::check(settings, {image}).message(), HasSubstr("the loss has none"));
  EXPECT_THAT(Mixing::check(settings, {{"x", plan::U8, {3, 8, 8}}, labels}).message(),
              HasSubstr("inputs of float32; 'x' is u8"));
  EXPECT_THAT(Mixing::check(settings, {{"x", plan::F32, {8}}, labels}).message(), HasSubstr("is for images"));
  EXPECT_THAT(Mixing::check(settings, {image, {"y", plan::F32, {3, 9, 8}}, labels}).message(),
              HasSubstr("of another size"));
  settings.cutmix = 0, settings.mixup = 1;
  EXPECT_TRUE(Mixing::check(settings, {{"x", plan::F32, {8}}, labels}).isOk());
}

} // namespace
} // namespace cleave::runtime
