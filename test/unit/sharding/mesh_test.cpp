#include "runtime/base/sharding/mesh.h"
#include <gtest/gtest.h>

namespace cleave::dist {
namespace {

Mesh meshOf(const std::string &text) {
  Mesh result;
  std::string error;
  EXPECT_TRUE(Mesh::parse(text, result, error)) << error;
  return result;
}

std::string parseError(const std::string &text) {
  Mesh result;
  std::string error;
  EXPECT_FALSE(Mesh::parse(text, result, error)) << text;
  return error;
}

TEST(Mesh, numbersDevicesRowMajor) {
  Mesh m = meshOf("dp=2,tp=4");
  EXPECT_EQ(m.numDevices(), 8);
  EXPECT_EQ(m.coordinate(5), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(m.axisSize("tp"), 4);
  EXPECT_EQ(m.axisSize("pp"), 1);
  EXPECT_EQ(m.groupSize({"dp", "tp"}), 8);
  EXPECT_EQ(m.groupSize({}), 1);
}

TEST(Mesh, indexFollowsTheOrderOfTheGroup) {
  Mesh m = meshOf("dp=2,tp=4");
  EXPECT_EQ(m.indexAlong(6, {"dp"}), 1);
  EXPECT_EQ(m.indexAlong(6, {"tp"}), 2);
  EXPECT_EQ(m.indexAlong(6, {"dp", "tp"}), 6);
  EXPECT_EQ(m.indexAlong(6, {"tp", "dp"}), 5);
  EXPECT_EQ(m.indexAlong(6, {}), 0);
}

TEST(Mesh, groupsHoldTheDeviceAtItsOwnIndex) {
  Mesh m = meshOf("a=2,b=3,c=2");
  EXPECT_EQ(m.group(0, {"b"}), (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(m.group(7, {"a", "c"}), (std::vector<int64_t>{0, 1, 6, 7}));
  for (const Axes &axes : std::vector<Axes>{{}, {"a"}, {"c", "a"}, {"b", "c"}, {"c", "b", "a"}})
    for (int64_t device = 0; device < m.numDevices(); ++device) {
      std::vector<int64_t> group = m.group(device, axes);
      ASSERT_EQ(static_cast<int64_t>(group.size()), m.groupSize(axes));
      EXPECT_EQ(group[m.indexAlong(device, axes)], device);
      for (int64_t member : group) EXPECT_EQ(m.group(member, axes), group);
    }
}

TEST(Mesh, textRoundTrips) {
  for (std::string text : {"dp=2,tp=4", "dp=1", "x_1=3,y=5,z=7", ""}) EXPECT_EQ(meshOf(text).str(), text);
}

TEST(Mesh, malformedTextsAreRefusedWithTheReason) {
  EXPECT_NE(parseError("dp").find("'dp'"), std::string::npos);
  EXPECT_NE(parseError("dp=").find("whole number"), std::string::npos);
  EXPECT_NE(parseError("dp=0").find("at least 1"), std::string::npos);
  EXPECT_NE(parseError("dp=-2").find("at least 1"), std::string::npos);
  EXPECT_NE(parseError("dp=2,dp=3").find("twice"), std::string::npos);
  EXPECT_NE(parseError("=2").find("no axis name"), std::string::npos);
  EXPECT_NE(parseError("dp=2,").find("comma"), std::string::npos);
  EXPECT_NE(parseError("dp=2,,tp=2").find("no axis name"), std::string::npos);
  EXPECT_NE(parseError("d p=2").find("no axis name"), std::string::npos);
  EXPECT_NE(parseError("dp=99999999999999999999").find("whole number"), std::string::npos);
}

} // namespace
} // namespace cleave::dist
