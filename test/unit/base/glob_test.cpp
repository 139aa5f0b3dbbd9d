#include "runtime/base/names/glob.h"
#include <gtest/gtest.h>

namespace cleave::names {
namespace {

TEST(Glob, MatchesWholeNames) {
  EXPECT_TRUE(matchGlob("*.bias", "blocks.0.c_proj.bias"));
  EXPECT_FALSE(matchGlob("*.bias", "blocks.0.bias_table"));
  EXPECT_FALSE(matchGlob("*.bias", "bias"));
  EXPECT_TRUE(matchGlob("*ln*", "blocks.0.ln1.weight"));
  EXPECT_TRUE(matchGlob("h.?.w", "h.3.w"));
  EXPECT_FALSE(matchGlob("h.?.w", "h.12.w"));
  EXPECT_TRUE(matchGlob("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(matchGlob("a*b*c", "aXbYbZ"));
  EXPECT_TRUE(matchGlob("*", ""));
  EXPECT_FALSE(matchGlob("", "x"));
  EXPECT_FALSE(matchGlob("a", "ab"));
}

TEST(Glob, NearestOfWordsAndGlobs) {
  const std::vector<std::string> names = {"h.0.c_fc.bias", "h.0.c_fc.weight", "h.11.c_proj.weight", "lr"};
  EXPECT_EQ(nearest("h.0.c_fc.wieght", names), "h.0.c_fc.weight");
  EXPECT_EQ(nearest("l", names), "lr");
  EXPECT_EQ(nearest("something else", names), "");
  // The text of a '*' costs nothing, a '?' is any one character.
  EXPECT_EQ(nearest("*.c_fc.wieght", names), "h.0.c_fc.weight");
  EXPECT_EQ(nearest("h.?.c_fc.biass", names), "h.0.c_fc.bias");
  EXPECT_EQ(nearest("*c_porj*", names), "h.11.c_proj.weight");
  // Nothing would be left of so short a glob.
  EXPECT_EQ(nearest("*x*", names), "");
  EXPECT_EQ(suggestion("*c_porj*", names), "; the nearest name is 'h.11.c_proj.weight'");
  EXPECT_EQ(suggestion("lrr", names), "; did you mean 'lr'?");
  EXPECT_EQ(suggestion("*x*", names), "");
}

} // namespace
} // namespace cleave::names
