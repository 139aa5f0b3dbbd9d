// Where the mesh axes lie on the devices: which orders there are, what they cost, and that the best of them is found.
#include "compiler/planner/decided_model.h"
#include "compiler/planner/mesh_order.h"
#include "compiler/planner/outer_search.h"
#include "compiler/planner/settings.h"
#include "test/unit/planner/problem_builder.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <set>

namespace cleave::planner {
namespace {

using testing::gpt;

Setting settingOf(int64_t pp, int64_t dp, int64_t tp) {
  Setting setting;
  setting.pp = pp;
  setting.dp = dp;
  setting.tp = tp;
  return setting;
}

std::set<std::string> meshesOf(const Cluster &cluster, Setting setting, const std::vector<Axis> &asked = {}) {
  std::set<std::string> meshes;
  for (const AxisOrder &order : openOrders(cluster, setting, asked)) {
    setting.order = order;
    meshes.insert(setting.mesh().str());
  }
  return meshes;
}

// Ranks of a group in one node, counted device by device.
int64_t counted(const Cluster &cluster, const Setting &setting, const dist::Axes &axes) {
  const dist::Mesh mesh = setting.mesh();
  int64_t most = 0;
  for (int64_t device : mesh.group(0, axes)) most += device / cluster.devicesPerNode == 0;
  return most;
}

TEST(MeshOrder, GroupsAreThoseOfTheMesh) {
  Result<Cluster> cluster = parseCluster("a100-80g:4x4");
  for (int64_t pp : {1, 2, 4, 8})
    for (int64_t dp : {1, 2, 4})
      for (int64_t tp : {1, 2, 4}) {
        if (16 % (pp * dp * tp) != 0) continue;
        Setting setting = settingOf(pp, dp, tp);
        setting.cp = 16 / (pp * dp * tp);
        std::array<Axis, 4> turn = {Axis::Pipeline, Axis::Data, Axis::Sequence, Axis::Tensor};
        do {
          for (size_t i = 0; i < 4; ++i) setting.order[std::array{0, 1, 3, 5}[i]] = turn[i];
          Setting again = setting;
          again.order = orderOf(setting.mesh());
          EXPECT_EQ(again.mesh(), setting.mesh());
          for (auto [axis, name] : {std::pair{Axis::Pipeline, "pp"}, {Axis::Data, "dp"}, {Axis::Tensor, "tp"}})
            EXPECT_EQ(setting.group(*cluster, setOf({axis})).perNode, counted(*cluster, setting, {name}))
                << setting.mesh().str() << name;
          EXPECT_EQ(setting.group(*cluster, setOf({Axis::Data, Axis::Sequence})).perNode,
                    counted(*cluster, setting, {"dp", "cp"}));
          // A border lies between nodes where the devices say so.
          const dist::Mesh mesh = setting.mesh();
          const std::vector<int64_t> ranks = mesh.group(0, {"pp"});
          for (size_t r = 0; r + 1 < ranks.size(); ++r)
            EXPECT_EQ(setting.tierBetweenRanks(*cluster, int(r), int(r) + 1),
                      tierBetween(*cluster, ranks[r], ranks[r + 1]))
                << mesh.str() << " rank " << r;
        } while (std::ranges::next_permutation(turn).found);
      }
}

// Of all groups along an axis, the one that has fewest ranks under some switch; 12 nodes fill one of 8 and half of the
// next.
TEST(MeshOrder, GroupsUnderSwitchesAreThoseOfTheMesh) {
  Result<Cluster> cluster = parseCluster("a100-80g:2x12");
  cluster->levels = {{2, 1e9, 1e-5}, {4, 1e9, 1e-5}, {8, 1e9, 1e-5}};
  int checked = 0;
  for (int64_t pp : {1, 2, 3, 4, 6, 12, 24})
    for (int64_t dp : {1, 2, 3, 4, 6, 12, 24}) {
      if (24 % (pp * dp) != 0) continue;
      Setting setting = settingOf(pp, dp, 24 / pp / dp);
      std::array<Axis, 3> turn = {Axis::Pipeline, Axis::Data, Axis::Tensor};
      do {
        for (size_t i = 0; i < 3; ++i) setting.order[std::array{0, 1, 5}[i]] = turn[i];
        const dist::Mesh mesh = setting.mesh();
        for (auto [axis, name] : {std::pair{Axis::Pipeline, "pp"}, {Axis::Data, "dp"}, {Axis::Tensor, "tp"}})
          for (size_t level = 0; level < 3; ++level) {
            const int64_t devices = cluster->levels[level].nodes * 2, size = setting.axisSize(axis);
            const int64_t stride = setting.stride(axis);
            const bool fillsNodes = size * stride % 2 == 0, areAlike = devices % stride == 0 || stride >= devices;
            if (!fillsNodes || !areAlike) continue;
            int64_t fewest = size;
            for (int64_t device = 0; device < 24; ++device) {
              std::map<int64_t, int64_t> ranks;
              for (int64_t other : mesh.group(device, {name})) ++ranks[other / devices];
              for (auto [atSwitch, count] : ranks) fewest = std::min(fewest, count);
            }
            EXPECT_EQ(setting.group(*cluster, setOf({axis})).perSwitch[level], fewest) << mesh.str() << name << level;
            ++checked;
          }
      } while (std::ranges::next_permutation(turn).found);
    }
  EXPECT_GE(checked, 500);
}

TEST(MeshOrder, OrdersOfTheSamePriceAreOne) {
  Result<Cluster> two = parseCluster("a100-80g:8x2"), one = parseCluster("a100-80g:8");
  EXPECT_EQ(meshesOf(*two, settingOf(2, 2, 4)),
            (std::set<std::string>{"pp=2,dp=2,tp=4", "dp=2,pp=2,tp=4", "tp=4,pp=2,dp=2"}));
  EXPECT_EQ(meshesOf(*two, settingOf(2, 1, 8)), (std::set<std::string>{"pp=2,dp=1,tp=8", "tp=8,dp=1,pp=2"}));
  EXPECT_EQ(meshesOf(*one, settingOf(2, 2, 2)), (std::set<std::string>{"pp=2,dp=2,tp=2"}));
  // Asked for: as it is said, on one node too.
  EXPECT_EQ(meshesOf(*one, settingOf(2, 2, 2), {Axis::Tensor, Axis::Pipeline}),
            (std::set<std::string>{"dp=2,tp=2,pp=2"}));
  EXPECT_FALSE(parseAxisOrder("pp,up"));
  EXPECT_FALSE(parseAxisOrder("pp,dp,pp"));
}

// Small activations between stages and many gradients: pipelines side by side, stages on different nodes, are slower
// than samples on different nodes; with many samples and few parameters it is the other way round.
TEST(MeshOrder, TheSearchTurnsTheMeshWhereItIsFaster) {
  Result<Cluster> nodes = parseCluster("a100-80g:4x2"), switches = parseCluster("a100-80g:1x8");
  nodes->network.bandwidth /= 64;
  switches->levels = {{4, switches->network.bandwidth / 16, switches->network.latency}};
  for (Cluster *cluster : {&*nodes, &*switches}) {
    int turned = 0;
    for (const Problem &problem : {gpt({64, 64, 128, 8, 8, 512}), gpt({8, 64, 1024, 8, 4, 512})}) {
      double best = 0;
      for (const char *order : {"pp,dp,tp", "dp,pp,tp", "tp,pp,dp", "dp,tp,pp", "tp,dp,pp", "pp,tp,dp"}) {
        Result<Constraints> pinned = parseConstraints({.mesh = "pp=2,dp=2,tp=2", .meshOrder = order}, *cluster);
        Result<Decision> decision = solve(problem, *cluster, *pinned, {.alternatives = false});
        ASSERT_TRUE(decision) << decision.status().message();
        EXPECT_EQ(decision->mesh.axes[0].name, std::string(order).substr(0, 2));
        EXPECT_EQ(decision->mesh.axes[2].name, std::string(order).substr(6, 2));
        const double seconds = decision->predicted.stepSeconds;
        best = best == 0 ? seconds : std::min(best, seconds);
        Result<DecidedModel> decided = decidedModel(problem, *cluster, *decision);
        ASSERT_TRUE(decided);
        EXPECT_NEAR(decided->evaluate().predicted.stepSeconds, seconds, 1e-9 * seconds);
      }
      Result<Constraints> open = parseConstraints({.mesh = "pp=2,dp=2,tp=2"}, *cluster);
      Result<Decision> decision = solve(problem, *cluster, *open, {.alternatives = false});
      ASSERT_TRUE(decision) << decision.status().message();
      EXPECT_NEAR(decision->predicted.stepSeconds, best, 1e-9 * best);
      turned += decision->mesh.axes[0].name != "pp";
    }
    EXPECT_GE(turned, 1);
  }
}

// Many orders make no problem large: it is solved as exactly as its parts are, for a tp each.
TEST(MeshOrder, WithManyOrdersASmallProblemIsStillSolvedExactly) {
  constexpr size_t small = 10000; // variables in all settings together (search_space.cpp)
  Result<Cluster> cluster = parseCluster("a100-80g:2x8");
  cluster->network.bandwidth /= 16;
  cluster->device.dispatchSeconds = 0;
  for (int layers : {2, 4}) {
    Problem problem = gpt({32, 64, 512, 8, layers, 512});
    Constraints constraints;
    constraints.schedule = "1f1b";
    constraints.recompute = Recompute::None;
    ProblemFacts facts = gatherFacts(problem, constraints);
    const std::vector<Setting> settings = openSettings(problem, facts, *cluster, constraints, true);
    auto isUsual = [](const Setting &setting) { return setting.order == usualOrder; };
    ASSERT_GT(settings.size() * facts.structure->variables.size(), small);
    ASSERT_LE(size_t(std::ranges::count_if(settings, isUsual)) * facts.structure->variables.size(), small);
    double best = std::numeric_limits<double>::infinity(), bound = best;
    for (int64_t tp : {1, 2, 4, 8, 16}) {
      Constraints part = constraints;
      part.tp = tp;
      Outcome outcome = searchSettings(problem, facts, *cluster, part, {.alternatives = false});
      ASSERT_TRUE(outcome.best);
      best = std::min(best, outcome.best->seconds());
      bound = std::min(bound, outcome.bound);
    }
    Outcome outcome = searchSettings(problem, facts, *cluster, constraints, {.alternatives = false});
    ASSERT_TRUE(outcome.best);
    EXPECT_NEAR(outcome.best->seconds(), best, 1e-9 * best);
    EXPECT_NEAR(outcome.bound, bound, 1e-9 * best);
    EXPECT_GE(outcome.bound, 0.995 * best); // with what waits for gradients, bounds are as close as all searches need
  }
}

} // namespace
} // namespace cleave::planner
