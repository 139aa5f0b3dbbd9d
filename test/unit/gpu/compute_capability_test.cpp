// Every GPU that a cluster preset exists for has a compute capability to compile for; CPUs and unknown kinds have none.
#include "compiler/cluster/cluster.h"
#include "compiler/cluster/device_presets.h"
#include <gtest/gtest.h>

namespace cleave::planner {
namespace {

TEST(ComputeCapability, OfEveryPreset) {
  for (const std::string &kind : presetKinds()) EXPECT_EQ(computeCapability(kind).rfind("sm_", 0), 0u) << kind;
}
TEST(ComputeCapability, FollowsTheFirstPartOfTheName) {
  EXPECT_EQ(computeCapability("a100-40g"), "sm_80");
  EXPECT_EQ(computeCapability("h100-pcie"), "sm_90");
  EXPECT_EQ(computeCapability("b200"), "sm_100");
  EXPECT_EQ(computeCapability("sm_89"), "sm_89");
  for (const char *other : {"cpu", "", "a1000", "my-accelerator"}) EXPECT_EQ(computeCapability(other), "");
}

} // namespace
} // namespace cleave::planner
