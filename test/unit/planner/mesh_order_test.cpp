// Where the mesh axes lie on the devices: which orders there are, what they cost, and that the best of them is found.
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/explain/decided_model.h"
#include "compiler/planner/problem/mesh_order.h"
#include "compiler/planner/search/driver/outer_search.h"
#include "compiler/planner/search/driver/search.h"
#include "compiler/planner/search/space/settings.h"
#include "test/unit/planner/problem_builder.h"
#include <algorithm>
#include <cmath>
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

// The fewest ranks of a group along these axes that lie under one of the switches (or nodes) of so many devices;
// counted device by device.
int64_t fewest(const dist::Mesh &mesh, const dist::Axes &axes, int64_t devices) {
  int64_t least = mesh.numDevices();
  for (int64_t device = 0; device < mesh.numDevices(); ++device) {
    std::map<int64_t, int64_t> ranks;
    for (int64_t other : mesh.group(device, axes)) ++ranks[other / devices];
    for (auto [atSwitch, count] : ranks) least = std::min(least, count);
  }
  return least;
}

// The farthest that the devices of two ranks along an axis are apart.
Tier farthest(const Cluster &cluster, const dist::Mesh &mesh, const std::string &axis, size_t rank, size_t other) {
  Tier tier = inNode;
  for (int64_t device = 0; device < mesh.numDevices(); ++device) {
    const std::vector<int64_t> group = mesh.group(device, {axis});
    tier = std::max(tier, tierBetween(cluster, group[rank], group[other]));
  }
  return tier;
}

struct GroupCounts {
  int axes = 0, crossing = 0, pairs = 0, neighbours = 0, notNext = 0; // that were looked at
};

// Every order of every mesh over pp, dp, cp and tp.
GroupCounts checkGroups(const Cluster &cluster) {
  GroupCounts counts;
  const int64_t all = cluster.numDevices();
  const std::pair<Axis, const char *> axes[] = {
      {Axis::Pipeline, "pp"}, {Axis::Data, "dp"}, {Axis::Sequence, "cp"}, {Axis::Tensor, "tp"}};
  std::vector<int64_t> sizes; // devices in a node, and under each level's switches
  sizes.push_back(cluster.devicesPerNode);
  for (const NetworkLevel &level : cluster.levels) sizes.push_back(level.nodes * cluster.devicesPerNode);
  for (int64_t pp = 1; pp <= all; ++pp)
    for (int64_t dp = 1; pp * dp <= all; ++dp)
      for (int64_t cp = 1; pp * dp * cp <= all; ++cp) {
        if (all % (pp * dp * cp) != 0) continue;
        Setting setting = settingOf(pp, dp, all / pp / dp / cp);
        setting.cp = cp;
        std::array<Axis, 4> turn = {Axis::Pipeline, Axis::Data, Axis::Sequence, Axis::Tensor};
        do {
          for (size_t i = 0; i < 4; ++i) setting.order[std::array{0, 1, 3, 5}[i]] = turn[i];
          const dist::Mesh mesh = setting.mesh();
          for (auto [axis, name] : axes) {
            const GroupShape group = setting.group(cluster, setOf({axis}));
            for (size_t at = 0; at < sizes.size() && group.size > 1; ++at) {
              const int64_t counted = fewest(mesh, {name}, sizes[at]);
              EXPECT_EQ(group.within(at), counted) << mesh.str() << " " << name << " under " << sizes[at];
              ++counts.axes;
              counts.crossing += counted < group.size && counted > 1;
            }
          }
          // Two axes, one inside the other or with others in between.
          const GroupShape both = setting.group(cluster, setOf({Axis::Data, Axis::Sequence}));
          const int64_t counted = fewest(mesh, {"dp", "cp"}, sizes[0]);
          const bool areNext = dp == 1 || cp == 1 ||
                               setting.stride(Axis::Data) == cp * setting.stride(Axis::Sequence) ||
                               setting.stride(Axis::Sequence) == dp * setting.stride(Axis::Data);
          if (areNext)
            EXPECT_EQ(both.perNode, dp * cp > 1 ? counted : 1) << mesh.str();
          else
            EXPECT_LE(both.perNode, counted) << mesh.str();
          counts.notNext += !areNext;
          for (int64_t rank = 0; rank < pp; ++rank)
            for (int64_t other : {rank + 1, pp - 1}) {
              if (other >= pp) continue;
              EXPECT_EQ(setting.tierBetweenRanks(cluster, int(rank), int(other)),
                        farthest(cluster, mesh, "pp", size_t(rank), size_t(other)))
                  << mesh.str() << " ranks " << rank << " and " << other;
              ++counts.pairs;
            }
        } while (std::ranges::next_permutation(turn).found);
      }
  return counts;
}

TEST(MeshOrder, GroupsAreThoseOfTheMesh) {
  Result<Cluster> cluster = parseCluster("a100-80g:4x4");
  for (auto [pp, dp, tp] : {std::tuple{2, 2, 4}, {4, 2, 2}, {1, 4, 4}, {16, 1, 1}, {2, 1, 8}}) {
    Setting setting = settingOf(pp, dp, tp);
    setting.order = {Axis::Data, Axis::Pipeline, Axis::Shards, Axis::Sequence, Axis::Experts, Axis::Tensor};
    Setting again = setting;
    again.order = orderOf(setting.mesh());
    EXPECT_EQ(again.mesh(), setting.mesh());
  }
  const GroupCounts counts = checkGroups(*cluster);
  EXPECT_GE(counts.axes, 500);
  EXPECT_GE(counts.pairs, 300);
}

// Groups of 3, 6 or 12 on nodes of 8, of 2 or 10 on nodes of 5.
TEST(MeshOrder, GroupsNeedNotBeginWhereNodesDo) {
  for (const char *preset : {"a100-80g:8x3", "a100-80g:5x4", "a100-80g:4x3"}) {
    const GroupCounts counts = checkGroups(*parseCluster(preset));
    EXPECT_GE(counts.crossing, 30) << preset;
  }
}

// 12 nodes fill a switch of 8 and half of the next.
TEST(MeshOrder, GroupsUnderSwitchesAreThoseOfTheMesh) {
  Result<Cluster> cluster = parseCluster("a100-80g:2x12");
  cluster->levels = {{2, 1e9, 1e-5}, {4, 1e9, 1e-5}, {8, 1e9, 1e-5}};
  EXPECT_GE(checkGroups(*cluster).crossing, 500);
  cluster->nodes = 10;
  cluster->levels = {{3, 1e9, 1e-5}, {6, 1e9, 1e-5}};
  EXPECT_GE(checkGroups(*cluster).crossing, 100);
}

// In one node 6 ranks take part in nothing else; on nodes of 8 every fourth group of 6 is 2 in one and 4 in the next.
TEST(MeshOrder, AGroupOverABorderCostsWhatItsSmallerPartDoes) {
  Result<Cluster> cluster = parseCluster("a100-80g:8x3");
  const GroupShape six = groupAlong(*cluster, 6, 1);
  EXPECT_EQ(six.perNode, 2);
  EXPECT_DOUBLE_EQ(collectiveSeconds(*cluster, Collective::AllGather, six, 1e9),
                   (1 + std::log2(6)) / 2 * cluster->network.latency +
                       5.0 / 6 * 1e9 / (2 * cluster->network.bandwidth * constants::networkEfficiency));
  cluster->devicesPerNode = 24;
  cluster->nodes = 1;
  EXPECT_EQ(groupAlong(*cluster, 6, 1).perNode, 6);
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
  Result<Cluster> nodes = parseCluster("a100-80g:4x2,software=megatron-2021"),
                  switches = parseCluster("a100-80g:1x8,software=megatron-2021");
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
    ProblemFacts facts = gatherFacts(problem, cluster->device, constraints);
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
