#include "runtime/base/sharding/samples.h"
#include <gtest/gtest.h>

namespace cleave::dist {
namespace {

constexpr int64_t samples = 8;

std::optional<SamplePlace> at(int64_t dim, int64_t inner = 1) { return SamplePlace{dim, inner}; }

// [8,32,64] -> [256,64]
FactorRule flatten() {
  FactorRule rule;
  int64_t b = rule.add(8), s = rule.add(32), d = rule.add(64);
  rule.operands = {{{b}, {s}, {d}}};
  rule.results = {{{b, s}, {d}}};
  return rule;
}

TEST(Samples, lieInBlocksOfAFlattenedDimension) {
  SampleStep step = samplesThrough(flatten(), {at(0)}, samples);
  EXPECT_FALSE(step.meet);
  EXPECT_EQ(step.results[0], at(0, 32));
}

// [6,8,5] -> [48,5]: the samples are the minor part.
TEST(Samples, mayBeTheMinorPart) {
  FactorRule rule;
  int64_t t = rule.add(6), b = rule.add(8), d = rule.add(5);
  rule.operands = {{{t}, {b}, {d}}};
  rule.results = {{{t, b}, {d}}};
  EXPECT_EQ(samplesThrough(rule, {at(1)}, samples).results[0], at(0));
  std::swap(rule.operands, rule.results);
  EXPECT_EQ(samplesThrough(rule, {at(0)}, samples).results[0], at(1));
}

// x[b,k] w[k,n]: apart; a[b,k] c[b,k] -> [b,b]: each with each other; a[b,k] c[b,n] -> [k,n]: a sum.
TEST(Samples, meetInAProductOfEachWithEachOther) {
  FactorRule linear, pairs, gram;
  int64_t b = linear.add(8), k = linear.add(4, Factor::Reduced), n = linear.add(3);
  linear.operands = {{{b}, {k}}, {{k}, {n}}}, linear.results = {{{b}, {n}}};
  EXPECT_EQ(samplesThrough(linear, {at(0), std::nullopt}, samples).results[0], at(0));
  int64_t row = pairs.add(8), column = pairs.add(8), feature = pairs.add(4, Factor::Reduced);
  pairs.operands = {{{row}, {feature}}, {{column}, {feature}}}, pairs.results = {{{row}, {column}}};
  EXPECT_TRUE(samplesThrough(pairs, {at(0), at(0)}, samples).meet);
  int64_t over = gram.add(8, Factor::Reduced), left = gram.add(4), right = gram.add(3);
  gram.operands = {{{over}, {left}}, {{over}, {right}}}, gram.results = {{{left}, {right}}};
  SampleStep step = samplesThrough(gram, {at(0), at(0)}, samples);
  EXPECT_FALSE(step.meet);
  EXPECT_TRUE(step.sums);
  EXPECT_FALSE(step.results[0]);
}

// A sort or a running sum along the samples needs all of them.
TEST(Samples, meetWhereTheirDimensionIsWhole) {
  FactorRule rule;
  int64_t b = rule.add(8, Factor::Whole), d = rule.add(4);
  rule.operands = rule.results = {{{b}, {d}}};
  EXPECT_TRUE(samplesThrough(rule, {at(0)}, samples).meet);
  EXPECT_FALSE(samplesThrough(rule, {std::nullopt}, samples).meet);
}

} // namespace
} // namespace cleave::dist
