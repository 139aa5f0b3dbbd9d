#include "compiler/planner/search/driver/search.h"
#include "test/unit/planner/problem_builder.h"
#include <fmt/format.h>
#include <gmock/gmock.h>

namespace cleave::planner {
namespace {

using testing::gpt;

TEST(Infeasible, WhenNothingFitsItSaysWhatWould) {
  auto cluster = parseCluster("a100-80g:8");
  auto constraints = parseConstraints({.like = "ddp"}, *cluster);
  Result<Decision> decision = solve(gpt({64, 2048, 8192, 64, 48, 51200}), *cluster, *constraints, {});
  ASSERT_FALSE(decision);
  EXPECT_EQ(decision.status().exitStatus(), 3);
  EXPECT_THAT(decision.status().message(), ::testing::HasSubstr("no plan fits"));
  EXPECT_THAT(decision.status().message(), ::testing::HasSubstr("devices with"));
}

// Another schedule is named for a pipeline whose schedule keeps too much, and another cut for one that was given.
TEST(Infeasible, WhenNoPipelineFitsItSaysWhatWould) {
  Problem problem = gpt({64, 64, 256, 8, 8, 512});
  Result<Cluster> cluster = parseCluster("a100-80g:4");
  SplitFlags flags{.mesh = "pp=4", .microbatches = "16", .schedule = "gpipe", .recompute = "none", .offload = "none"};
  cluster->device.memoryBytes = 120e6;
  auto messageOf = [&](const SplitFlags &asked) {
    Result<Decision> decision = solve(problem, *cluster, *parseConstraints(asked, *cluster), {});
    EXPECT_FALSE(decision);
    EXPECT_EQ(decision.status().exitStatus(), int(ErrorKind::NoFit)) << decision.status().message();
    return decision.status().message();
  };
  std::string text = messageOf(flags);
  EXPECT_THAT(text, ::testing::HasSubstr("needs"));
  EXPECT_THAT(text, ::testing::HasSubstr("\n  another --schedule: pp=4"));
  flags.schedule = "1f1b";
  Result<Decision> fits = solve(problem, *cluster, *parseConstraints(flags, *cluster), {.alternatives = false});
  ASSERT_TRUE(fits) << fits.status().message();
  cluster->device.memoryBytes = 1.1 * fits->predicted.memory.total();
  flags.balance = "1,1,1,5";
  text = messageOf(flags);
  EXPECT_THAT(text, ::testing::HasSubstr("\n  without --balance and --split-at: pp=4"));
}

// A plan that is said to fit does, at the price that is said, when it is asked for.
TEST(Infeasible, WhatIsSaidToFitWithoutThePresetIsWhatIsFoundWithoutIt) {
  Problem problem = gpt({64, 64, 256, 8, 8, 512});
  Result<Cluster> cluster = parseCluster("a100-80g:4");
  cluster->device.memoryBytes = 60e6;
  Result<Decision> refused = solve(problem, *cluster, *parseConstraints({.like = "ddp"}, *cluster), {});
  ASSERT_FALSE(refused);
  const std::string text = refused.status().message();
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("another --zero"))); // it would be no ddp
  Result<Decision> free = solve(problem, *cluster, *parseConstraints({}, *cluster), {.alternatives = false});
  ASSERT_TRUE(free) << free.status().message();
  ASSERT_NE(free->recompute, Recompute::None);
  EXPECT_THAT(text, ::testing::HasSubstr(
                        fmt::format("another mesh, without preset and pins: {} zero {} microbatches {} recompute {}",
                                    free->mesh.str(), free->zero, free->microbatches, name(free->recompute))));
  EXPECT_THAT(text, ::testing::HasSubstr(fmt::format("{:.4g} s a step", free->predicted.stepSeconds)));
}

// The number in "\n  devices with 12.5 MiB: ..." or in "\n  6 devices: ...".
double numberIn(const std::string &text, const std::string &before, const std::string &after) {
  const size_t end = text.find(after, before.empty() ? 0 : text.find(before));
  const size_t begin = text.rfind(' ', end - 1);
  return std::stod(text.substr(begin));
}

// The least memory and the fewest devices that are enough are told: they fit, some less does not, and where the hosts'
// memory is known that is with it.
TEST(Infeasible, TheLeastThatFitsIsTold) {
  Problem problem = gpt({16, 64, 256, 8, 4, 512});
  double sizes[2];
  for (bool hasHost : {false, true}) {
    Result<Cluster> cluster = parseCluster("a100-80g:1x2");
    cluster->device.memoryBytes = 10e6;
    cluster->hostMemoryBytes = hasHost ? 1e12 : 0;
    auto fits = [&](double memoryBytes, int64_t nodes) {
      Cluster larger = *cluster;
      larger.device.memoryBytes = memoryBytes;
      larger.nodes = nodes;
      return solve(problem, larger, *parseConstraints({.mesh = "pp=1", .zero = "0"}, larger),
                   {.alternatives = false, .certifies = false});
    };
    Result<Decision> refused = fits(10e6, 2);
    ASSERT_FALSE(refused);
    const std::string text = refused.status().message();
    const double least = numberIn(text, "\n  devices with", " MiB: ") * 1024 * 1024;
    EXPECT_TRUE(fits(least, 2)) << text;
    EXPECT_FALSE(fits(0.98 * least, 2)) << text;
    const int64_t devices = int64_t(numberIn(text, "", " devices: "));
    Result<Decision> more = fits(10e6, devices);
    ASSERT_TRUE(more) << text;
    if (devices > 4) EXPECT_FALSE(fits(10e6, devices / 2)) << text;
    EXPECT_THAT(text, ::testing::HasSubstr(fmt::format("{:.4g} s a step", more->predicted.stepSeconds)));
    sizes[hasHost] = least;
  }
  EXPECT_LT(sizes[true], 0.8 * sizes[false]);
}

// Where no flag alone is to blame, those are named that have to be left out together, and no others.
TEST(Infeasible, FlagsThatHaveToBeLeftOutTogetherAreTold) {
  Problem problem = gpt({16, 64, 256, 8, 4, 512});
  Result<Cluster> cluster = parseCluster("a100-80g:4,software=megatron-2021");
  cluster->device.memoryBytes = 36e6;
  cluster->hostMemoryBytes = 0;
  auto solved = [&](const SplitFlags &flags) {
    return solve(problem, *cluster, *parseConstraints(flags, *cluster), {.alternatives = false, .certifies = false});
  };
  const SplitFlags asked{.mesh = "dp=4", .zero = "0", .microbatches = "1", .recompute = "none", .offload = "none"};
  Result<Decision> refused = solved(asked);
  ASSERT_FALSE(refused);
  const std::string text = refused.status().message();
  for (std::string SplitFlags::*one : {&SplitFlags::mesh, &SplitFlags::zero, &SplitFlags::microbatches,
                                       &SplitFlags::recompute, &SplitFlags::offload}) {
    SplitFlags free = asked;
    free.*one = "";
    EXPECT_FALSE(solved(free)) << text;
  }
  SplitFlags both = asked;
  both.mesh = both.microbatches = "";
  Result<Decision> fits = solved(both);
  ASSERT_TRUE(fits) << text;
  EXPECT_THAT(text, ::testing::HasSubstr(
                        fmt::format("\n  another --microbatches and another mesh: {} zero 0 ", fits->mesh.str())));
  EXPECT_THAT(text, ::testing::HasSubstr(fmt::format("{:.4g} s a step", fits->predicted.stepSeconds)));
}

} // namespace
} // namespace cleave::planner
