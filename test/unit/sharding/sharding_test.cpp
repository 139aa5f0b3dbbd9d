#include "runtime/base/sharding/sharding.h"
#include <gtest/gtest.h>

namespace cleave::dist {
namespace {

const Mesh mesh{{{"dp", 2}, {"tp", 4}}};

Sharding layout(const std::string &text) {
  Sharding result;
  std::string error;
  EXPECT_TRUE(Sharding::parse(text, result, error)) << error;
  return result;
}

TEST(Sharding, textRoundTrips) {
  for (std::string text : {"[]", "[{}]", "[{dp},{},{tp}]", "[{dp,tp},{}]", "[{dp},{},{}] partial(tp)",
                           "[] partial(dp,tp)", "[{}] partial_max(tp)", "[{}] partial_min(dp)"})
    EXPECT_EQ(layout(text).str(), text);
  EXPECT_EQ(layout(" [ {dp} , { } ]  partial( tp ) ").str(), "[{dp},{}] partial(tp)");
}

TEST(Sharding, malformedTextsAreRefused) {
  for (std::string text : {"", "dp", "[{dp}", "[dp]", "[{dp},]", "[{dp}] tp", "[{dp}] partial(", "[{dp}] partial()x",
                           "[{dp,}]", "[{dp},{dp}]", "[{dp}] partial(dp)", "[{}] {}"}) {
    Sharding result;
    std::string error;
    EXPECT_FALSE(Sharding::parse(text, result, error)) << text;
    EXPECT_FALSE(error.empty());
  }
}

TEST(Sharding, localShapes) {
  std::vector<int64_t> local;
  std::string error;
  ASSERT_TRUE(localShape(mesh, layout("[{dp},{},{tp}]"), {8, 16, 64}, local, error));
  EXPECT_EQ(local, (std::vector<int64_t>{4, 16, 16}));
  ASSERT_TRUE(localShape(mesh, layout("[{dp,tp},{}] "), {8, 3}, local, error));
  EXPECT_EQ(local, (std::vector<int64_t>{1, 3}));
  EXPECT_FALSE(localShape(mesh, layout("[{dp,tp},{}]"), {12, 3}, local, error));
  EXPECT_NE(error.find("evenly"), std::string::npos);
  EXPECT_FALSE(localShape(mesh, layout("[{dp}]"), {12, 3}, local, error));
  EXPECT_FALSE(localShape(mesh, {{{"dp"}, {"dp"}}, {}, {}}, {4, 4}, local, error));
  EXPECT_NE(error.find("twice"), std::string::npos);
}

TEST(Sharding, replicatedAndUses) {
  EXPECT_TRUE(Sharding::replicated(3).isReplicated());
  EXPECT_FALSE(layout("[{}] partial(tp)").isReplicated());
  EXPECT_TRUE(layout("[{}] partial(tp)").uses("tp"));
  EXPECT_TRUE(layout("[{tp}]").uses("tp"));
  EXPECT_FALSE(layout("[{tp}]").uses("dp"));
}

using Step = ReshardStep;
std::vector<Step> steps(const std::string &from, const std::string &to) {
  return reshard(mesh, layout(from), layout(to));
}

TEST(Reshard, namedCases) {
  EXPECT_TRUE(steps("[{dp},{}]", "[{dp},{}]").empty());
  EXPECT_EQ(steps("[{dp},{}] partial(tp)", "[{dp},{}]"), (std::vector<Step>{{Collective::AllReduce, {"tp"}}}));
  EXPECT_EQ(steps("[{dp},{}] partial(tp)", "[{dp},{tp}]"), (std::vector<Step>{{Collective::ReduceScatter, {"tp"}, 1}}));
  EXPECT_EQ(steps("[{dp},{tp}]", "[{dp,tp},{}]"), (std::vector<Step>{{Collective::AllToAll, {"tp"}, 1, 0}}));
  EXPECT_EQ(steps("[{dp},{tp}]", "[{dp},{}]"), (std::vector<Step>{{Collective::AllGather, {"tp"}, 1}}));
  EXPECT_EQ(steps("[{},{}]", "[{},{tp}]"), (std::vector<Step>{{Collective::OwnPart, {"tp"}, 1}}));
  // Cut before the reduction, so that less is reduced; two partial axes are reduced at once.
  EXPECT_EQ(steps("[{},{}] partial(dp)", "[{tp},{}]"),
            (std::vector<Step>{{Collective::OwnPart, {"tp"}, 0}, {Collective::AllReduce, {"dp"}}}));
  EXPECT_EQ(steps("[{},{}] partial(dp,tp)", "[{},{}]"), (std::vector<Step>{{Collective::AllReduce, {"dp", "tp"}}}));
  EXPECT_EQ(steps("[{},{}] partial(dp,tp)", "[{tp},{}] partial(dp)"),
            (std::vector<Step>{{Collective::ReduceScatter, {"tp"}, 0}}));
  EXPECT_EQ(steps("[{tp},{}]", "[{dp},{}]"),
            (std::vector<Step>{{Collective::AllGather, {"tp"}, 0}, {Collective::OwnPart, {"dp"}, 0}}));
  // ZeRO beside tensor parallelism: only the ZeRO axis is gathered.
  EXPECT_EQ(steps("[{tp,dp},{}]", "[{tp},{}]"), (std::vector<Step>{{Collective::AllGather, {"dp"}, 0}}));
}

TEST(Reshard, axesOfSizeOneMoveNothing) {
  Mesh one{{{"dp", 1}, {"tp", 2}}};
  EXPECT_TRUE(reshard(one, {{{"dp"}, {}}, {}, {}}, {{{}, {"dp"}}, {}, {}}).empty());
}

TEST(Reshard, traffic) {
  EXPECT_DOUBLE_EQ(trafficBytes(mesh, {Collective::AllReduce, {"tp"}}, 1000), 1500);
  EXPECT_DOUBLE_EQ(trafficBytes(mesh, {Collective::ReduceScatter, {"tp"}, 0}, 1000), 750);
  EXPECT_DOUBLE_EQ(trafficBytes(mesh, {Collective::AllGather, {"tp"}, 0}, 1000), 3000);
  EXPECT_DOUBLE_EQ(trafficBytes(mesh, {Collective::AllToAll, {"tp"}, 0, 1}, 1000), 750);
  EXPECT_DOUBLE_EQ(trafficBytes(mesh, {Collective::OwnPart, {"tp"}, 0}, 1000), 0);
  EXPECT_DOUBLE_EQ(bytesAfter(mesh, {Collective::AllGather, {"tp"}, 0}, 1000), 4000);
  EXPECT_DOUBLE_EQ(bytesAfter(mesh, {Collective::ReduceScatter, {"dp", "tp"}, 0}, 1000), 125);
}

} // namespace
} // namespace cleave::dist
