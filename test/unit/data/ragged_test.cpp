#include "runtime/train/data/lengths.h"
#include "runtime/train/data/ragged.h"
#include "runtime/train/data/sequence.h"
#include <algorithm>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

namespace cleave::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double infinity = std::numeric_limits<double>::infinity();

// Samples of 3, 2 and 6 positions, whose numbers are their places, in fields of [length] and [length, length].
class RaggedTest : public testing::Test {
protected:
  RaggedTest() {
    settings.paths = {"data.npz"};
    settings.lengths = {4, 8};
    settings.shuffle = false;
    std::iota(numbers.begin(), numbers.end(), 10);
    whole.dtype = plan::I64;
    whole.shape = {11};
    whole.bytes = std::as_bytes(std::span(numbers));
    joined.add(whole, "data.npz");
  }
  static Field field(const std::string &name, std::vector<int64_t> shape, plan::DType type = plan::I64) {
    return {.name = name, .dtype = type, .shape = std::move(shape)};
  }
  static std::vector<Field> ofLength(int64_t n) {
    Field labels = field("labels", {n});
    labels.label = true;
    labels.ignored = {-100};
    return {field("ids", {n}),          labels,
            field("position_ids", {n}), field("attention_mask", {n}),
            field("segment_ids", {n}),  field("seen", {n, n}, plan::F32)};
  }
  // The first two fields are in the arrays, "seen" is filled as the recipe says, the others by their names.
  std::vector<RaggedSource> sources() {
    settings.fill["seen"] = Content::Mask;
    std::vector<RaggedSource> made{{joined}, {joined}};
    for (const Field &field : std::span(shorter).subspan(2)) made.push_back({.content = contentOf(field, settings)});
    return made;
  }
  DataSource open() {
    std::vector<std::vector<Field>> fields{ofLength(4), ofLength(8)};
    EXPECT_TRUE(markLengths(fields).isOk());
    shorter = fields[0];
    auto made = makeRagged(settings, fields[1], sources(), {{0, 3}, {3, 2}, {5, 6}});
    EXPECT_TRUE(made.isOk()) << made.status().message();
    return std::move(*made);
  }
  static std::vector<double> read(const Dataset &data, size_t number, int64_t row) {
    const Field &of = data.fields()[number];
    std::vector<std::byte> bytes(static_cast<size_t>(of.bytes()));
    EXPECT_TRUE(data.fill(number, std::span(&row, 1), bytes.data()).isOk());
    std::vector<double> values(static_cast<size_t>(of.elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      int64_t whole = 0;
      float real = 0;
      std::memcpy(&whole, bytes.data() + 8 * i, of.dtype == plan::I64 ? 8 : 0);
      std::memcpy(&real, bytes.data() + 4 * i, of.dtype == plan::F32 ? 4 : 0);
      values[i] = of.dtype == plan::I64 ? double(whole) : real;
    }
    return values;
  }

  DataSettings settings;
  std::array<int64_t, 11> numbers;
  Array whole;
  JoinedArray joined;
  std::vector<Field> shorter = ofLength(4);
};

TEST_F(RaggedTest, PadsASampleToTheLengthOfTheStep) {
  DataSource source = open();
  const Dataset &data = *source.train;
  EXPECT_EQ(source.filled, "{position_ids: positions, attention_mask: ones, segment_ids: segments, seen: mask}");
  ASSERT_EQ(data.size(), 3);
  EXPECT_THAT((std::vector<int64_t>{data.lengthOf(0), data.lengthOf(1), data.lengthOf(2)}), ElementsAre(3, 2, 6));
  EXPECT_THAT(read(data, 0, 2), ElementsAre(15, 16, 17, 18, 19, 20, 0, 0));
  EXPECT_THAT(read(data, 1, 1), ElementsAre(13, 14, -100, -100, -100, -100, -100, -100));
  std::unique_ptr<Dataset> four = data.atLength(shorter);
  EXPECT_THAT(read(*four, 0, 0), ElementsAre(10, 11, 12, 0));
  EXPECT_THAT(read(*four, 1, 0), ElementsAre(10, 11, 12, -100));
  EXPECT_THAT(read(*four, 2, 0), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(read(*four, 3, 0), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(read(*four, 4, 0), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(read(*four, 5, 1), ElementsAre(0, 0, -infinity, -infinity, 0, 0, -infinity, -infinity, //
                                             -infinity, -infinity, 0, -infinity, -infinity, -infinity, -infinity, 0));
}

TEST_F(RaggedTest, PacksSamplesSideBySide) {
  settings.pack = settings.causal = true;
  settings.pad["ids"] = 7;
  DataSource source = open();
  const Dataset &data = *source.train;
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(data.lengthOf(0), 5);
  EXPECT_THAT(read(data, 0, 0), ElementsAre(10, 11, 12, 13, 14, 7, 7, 7));
  EXPECT_THAT(read(data, 2, 0), ElementsAre(0, 1, 2, 0, 1, 0, 0, 0));
  EXPECT_THAT(read(data, 4, 0), ElementsAre(1, 1, 1, 2, 2, 0, 0, 0));
  const std::vector<double> seen = read(data, 5, 0);
  for (size_t query = 0; query < 8; ++query)
    for (size_t key = 0; key < 8; ++key) {
      const bool together = query < 3 ? key < 3 : query < 5 ? key >= 3 && key < 5 : key == query;
      EXPECT_EQ(seen[query * 8 + key], together && key <= query ? 0 : -infinity) << query << " " << key;
    }
}

TEST_F(RaggedTest, RefusesSamplesThatCannotServe) {
  std::vector<std::vector<Field>> fields{ofLength(4), ofLength(8)};
  ASSERT_TRUE(markLengths(fields).isOk());
  auto fault = [&](std::vector<Field> of, std::vector<SamplePart> samples) {
    auto made = makeRagged(settings, of, sources(), std::move(samples));
    EXPECT_FALSE(made.isOk());
    return made.status().message();
  };
  EXPECT_THAT(fault(fields[1], {{0, 3}, {0, 9}}),
              HasSubstr("sample 1 has 9 positions, the longest of data.lengths is 8"));
  EXPECT_THAT(fault(fields[1], {}), HasSubstr("holds no samples"));
  std::vector<Field> counted = fields[1];
  counted[1].ignored.clear();
  EXPECT_THAT(fault(counted, {{0, 3}}), HasSubstr("give the loss an ignore_index, or data.pad.labels a number"));
  std::vector<Field> square = fields[1];
  square[0] = fields[1][5];
  EXPECT_THAT(fault(square, {{0, 3}}), HasSubstr("one dimension of positions, before all others, is needed"));
  std::vector<Field> wide = fields[1];
  wide[3] = field("attention_mask", {2, 8});
  EXPECT_THAT(fault(wide, {{0, 3}}), HasSubstr("'attention_mask' is [2, 8] of a sample: `data` fills one number"));
  settings.pack = true;
  std::vector<Field> classes = fields[1];
  classes[1] = field("class", {});
  EXPECT_THAT(fault(classes, {{0, 3}}), HasSubstr("'class' has one value for each sample, and packed samples share"));
  std::vector<Field> fixed = fields[1];
  fixed[2].withoutSamples = true;
  EXPECT_THAT(fault(fixed, {{0, 3}}), HasSubstr("'position_ids' is the same for all samples of a step"));
}

} // namespace
} // namespace cleave::runtime
