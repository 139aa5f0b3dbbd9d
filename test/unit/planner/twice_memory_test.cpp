// Devices with twice the memory; a search for them may use what a microbatch costs from the search before it.
#include "compiler/planner/search/driver/outer_search.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/planner/search/space/search_space.h"
#include "test/unit/planner/problem_builder.h"
#include <gtest/gtest.h>

namespace cleave::planner {
namespace {

TEST(TwiceMemory, SharedCellsGiveTheSameSearch) {
  const Problem problem = testing::gpt({64, 128, 256, 8, 8, 512});
  const SearchOptions options{.alternatives = false};
  int faster = 0;
  for (const char *name : {"v100-16g:8", "a100-80g:2x4"})
    for (const char *mesh : {"", "pp=4"}) {
      Cluster cluster = *parseCluster(name);
      const Constraints constraints = *parseConstraints({.mesh = mesh}, cluster);
      const ProblemFacts facts = gatherFacts(problem, cluster.device, constraints);
      // So little that what is fastest does not fit.
      const Outcome roomy = searchSettings(problem, facts, cluster, constraints, options);
      ASSERT_TRUE(roomy.best);
      cluster.device.memoryBytes *= 0.6 * roomy.best->bytes() / cluster.device.usableBytes();
      Cells cells(problem, facts, cluster, constraints);
      const Outcome before = searchSettings(problem, facts, cluster, constraints, options, cells);
      ASSERT_TRUE(before.best) << name << " " << mesh;
      Cluster larger = cluster;
      larger.device.memoryBytes *= 2;
      const Outcome shared = searchSettings(problem, facts, larger, constraints, options, cells);
      const Outcome alone = searchSettings(problem, facts, larger, constraints, options);
      ASSERT_TRUE(shared.best && alone.best);
      EXPECT_EQ(shared.best->seconds(), alone.best->seconds()) << name << " " << mesh;
      EXPECT_EQ(shared.bound, alone.bound) << name << " " << mesh;
      EXPECT_LE(shared.best->seconds(), before.best->seconds());
      faster += shared.best->seconds() < before.best->seconds();
    }
  EXPECT_GT(faster, 0);
}

TEST(TwiceMemory, IsNeverSlowerAndFreesRecomputation) {
  const Problem problem = testing::gpt({64, 512, 1024, 16, 8, 4096});
  Cluster cluster = *parseCluster("a100-80g:4");
  const Constraints constraints = *parseConstraints({}, cluster);
  Result<Decision> roomy = solve(problem, cluster, constraints, {});
  ASSERT_TRUE(roomy) << roomy.status().message();
  EXPECT_DOUBLE_EQ(roomy->twiceMemorySeconds, roomy->predicted.stepSeconds);
  cluster.device.memoryBytes = roomy->predicted.memory.total() * 0.7;
  Result<Decision> tight = solve(problem, cluster, constraints, {});
  ASSERT_TRUE(tight) << tight.status().message();
  EXPECT_GT(tight->predicted.stepSeconds, roomy->predicted.stepSeconds);
  EXPECT_NEAR(tight->twiceMemorySeconds, roomy->predicted.stepSeconds, 1e-3 * roomy->predicted.stepSeconds);
}

} // namespace
} // namespace cleave::planner
