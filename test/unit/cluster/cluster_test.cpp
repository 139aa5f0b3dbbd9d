#include "compiler/cluster/cluster.h"
#include "compiler/cluster/cluster_fields.h"
#include "compiler/cluster/cost.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/problem/constraints.h"
#include <algorithm>
#include <gmock/gmock.h>
#include <random>

namespace cleave::planner {
namespace {

using ::testing::HasSubstr;

constexpr const char *example = R"(name: my-cluster
nodes: 16
devices_per_node: 8
device: {kind: a100-80g, memory_gib: 80, tflops: {fp32: 19.5, tf32: 156, bf16: 312, fp16: 312}, memory_gbps: 2039}
links:
  node:    {gbps: 2400, latency_us: 5, topology: switch}     # per device, each way
  network: {gbps: 200,  latency_us: 12}
)";

TEST(Cluster, ReadsTheExampleOfTheInterface) {
  auto cluster = parseClusterYaml(example, "c.yaml");
  ASSERT_TRUE(cluster) << cluster.status().message();
  EXPECT_EQ(cluster->numDevices(), 128);
  EXPECT_DOUBLE_EQ(cluster->device.memoryBytes, 80.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(cluster->device.flopsAt("bf16"), 312e12);
  EXPECT_DOUBLE_EQ(cluster->device.flopsAt("fp8"), 312e12); // no figure of its own: that of bf16
  EXPECT_DOUBLE_EQ(standardCluster("h100-80g", "cleave", 1, 8).device.flopsAt("fp8"), 2 * 989.4e12);
  EXPECT_DOUBLE_EQ(cluster->node.bandwidth, 300e9);
  EXPECT_DOUBLE_EQ(cluster->network.latency, 12e-6);
}

TEST(Cluster, YamlReadsBack) {
  for (const char *preset : {"a100-80g:8x16", "v100-16g:8", "cpu:4", "b200:8x2"}) {
    auto cluster = parseCluster(preset);
    ASSERT_TRUE(cluster) << cluster.status().message();
    auto again = parseClusterYaml(cluster->yaml(), "again.yaml");
    ASSERT_TRUE(again) << again.status().message();
    EXPECT_EQ(again->yaml(), cluster->yaml());
  }
}

constexpr const char *oversubscribed = R"(nodes: 16
devices_per_node: 8
device: {kind: a100-80g}
links:
  network: {gbps: 200, latency_us: 12, levels: [{nodes: 4, gbps: 66}, {nodes: 8, gbps: 20, latency_us: 15}]}
)";

TEST(Cluster, ReadsTheLevelsOfItsNetwork) {
  auto cluster = parseClusterYaml(oversubscribed, "c.yaml");
  ASSERT_TRUE(cluster) << cluster.status().message();
  ASSERT_EQ(cluster->levels.size(), 2u);
  EXPECT_EQ(cluster->levels[0].nodes, 4);
  EXPECT_DOUBLE_EQ(cluster->levels[0].bandwidth, 8.25e9);
  EXPECT_DOUBLE_EQ(cluster->levels[0].latency, 12e-6); // as below
  EXPECT_EQ(cluster->levels[1].nodes, 8);
  EXPECT_DOUBLE_EQ(cluster->levels[1].latency, 15e-6);
  auto again = parseClusterYaml(cluster->yaml(), "again.yaml");
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(again->yaml(), cluster->yaml());
  ASSERT_EQ(again->levels.size(), 2u);
  EXPECT_DOUBLE_EQ(again->levels[1].bandwidth, cluster->levels[1].bandwidth);
  EXPECT_EQ(again->levels[1].nodes, 8);
}

TEST(Cluster, LevelsThatMakeNoSenseAreRefused) {
  auto message = [](const std::string &levels) {
    std::string text = "nodes: 16\ndevices_per_node: 8\ndevice: {kind: a100-80g}\nlinks:\n"
                       "  network: {gbps: 200, latency_us: 12, levels: " +
                       levels + "}\n";
    return parseClusterYaml(text, "c.yaml").status().message();
  };
  EXPECT_THAT(message("3"), HasSubstr("c.yaml:5: 'levels' of links.network is a list"));
  EXPECT_THAT(message("[4]"), HasSubstr("must be a mapping"));
  EXPECT_THAT(message("[{nodes: 4}]"), HasSubstr("lacks 'gbps'"));
  EXPECT_THAT(message("[{gbps: 4}]"), HasSubstr("lacks 'nodes'"));
  EXPECT_THAT(message("[{nodes: 4, gbps: 66, shared_by: 2}]"), HasSubstr("unknown key 'shared_by'"));
  EXPECT_THAT(message("[{nodes: 1, gbps: 66}]"), HasSubstr("'nodes' of levels"));
  EXPECT_THAT(message("[{nodes: 4, gbps: 66}, {nodes: 4, gbps: 20}]"), HasSubstr("a multiple of 4"));
  EXPECT_THAT(message("[{nodes: 4, gbps: 66}, {nodes: 6, gbps: 20}]"), HasSubstr("a multiple of 4"));
  EXPECT_THAT(message("[{nodes: 4, gbps: 201}]"), HasSubstr("'gbps' of levels"));
  EXPECT_THAT(message("[{nodes: 4, gbps: 66, latency_us: 1}]"), HasSubstr("'latency_us' of levels"));
  EXPECT_THAT(message("[{nodes: 2, gbps: 9}, {nodes: 4, gbps: 8}, {nodes: 8, gbps: 7}, {nodes: 16, gbps: 6}, "
                      "{nodes: 32, gbps: 5}]"),
              HasSubstr("at most 4"));
  EXPECT_THAT(
      parseClusterYaml("nodes: 1\ndevices_per_node: 2\ndevice: {kind: a100-80g}\nlinks: {node: {gbps: 9, levels: "
                       "[]}}\n",
                       "c.yaml")
          .status()
          .message(),
      HasSubstr("unknown key 'levels'"));
}

// Figures that a file does not tell are those of its software, or follow from what it does tell.
TEST(Cluster, UntoldFiguresFollowTheFile) {
  auto device = [](const std::string &keys, const std::string &software = "cleave") {
    auto cluster = parseClusterYaml(
        "nodes: 1\ndevices_per_node: 8\nsoftware: " + software + "\ndevice: {kind: h100-80g" + keys + "}\n", "c.yaml");
    return cluster ? cluster->device : Device();
  };
  EXPECT_EQ(device("").gradientOverlap, device("").overlap);
  EXPECT_EQ(device(", overlap: 0.25").gradientOverlap, 0.25);
  EXPECT_EQ(device(", overlap: 0").overlap, 0);
  EXPECT_EQ(device(", overlap: 0.25", "megatron-2021").gradientOverlap, 0);
  EXPECT_EQ(device(", gradient_overlap: 0.5", "megatron-2021").gradientOverlap, 0.5);
  EXPECT_EQ(device(", kernel_traffic: 3").scoreTraffic, 3);
  EXPECT_EQ(device(", launch_us: 20").soloLaunchSeconds, device(", launch_us: 20").launchSeconds);
  EXPECT_EQ(device(", tensor_overlap: 0.5").tensorOverlap, 0.5);
}

// Plans are graphs with fused attention where the device can; the published runs' hosts hand kernels over.
TEST(Cluster, SoftwareSaysWhatIsPriced) {
  auto of = [](const std::string &preset) { return parseCluster(preset)->device; };
  EXPECT_EQ(parseCluster("a100-80g:8x2")->software, "cleave");
  EXPECT_EQ(parseCluster("a100-80g:8x2,software=pytorch")->software, "pytorch");
  EXPECT_EQ(parseCluster("a100-80g:8x2,software=pytorch")->name, "a100-80g:8x2");
  for (const char *preset : {"a100-40g:8", "h100-80g:8"}) {
    EXPECT_TRUE(of(preset).fusedAttention) << preset;
    EXPECT_EQ(of(preset).dispatchSeconds, 0) << preset;
  }
  EXPECT_FALSE(of("v100-16g:8").fusedAttention); // cuDNN's wants Ampere
  EXPECT_TRUE(of("v100-16g:8,software=pytorch").fusedAttention);
  EXPECT_FALSE(of("h100-80g:8,software=megatron-2021").fusedAttention);
  EXPECT_GT(of("h100-80g:8,software=megatron-core-2024").tensorOverlap, 0.5);
  for (const std::string &software : softwareNames()) {
    auto cluster = parseCluster("a100-80g:8,software=" + software);
    ASSERT_TRUE(cluster) << software;
    auto again = parseClusterYaml(cluster->yaml(), "again.yaml");
    ASSERT_TRUE(again) << again.status().message();
    EXPECT_EQ(again->software, software);
    EXPECT_EQ(again->yaml(), cluster->yaml());
    EXPECT_EQ(cluster->device.dispatchSeconds > 0, software != "cleave");
  }
  EXPECT_THAT(parseCluster("a100-80g:8,software=jax").status().message(),
              HasSubstr("the profiles are cleave, megatron-"));
  EXPECT_THAT(parseClusterYaml("nodes: 1\ndevices_per_node: 1\ndevice: {kind: a100-80g}\nsoftware: jax\n", "c.yaml")
                  .status()
                  .message(),
              HasSubstr("c.yaml:4: no software 'jax'"));
  EXPECT_THAT(parseCluster("cpu:4,software=pytorch").status().message(), HasSubstr("is of GPUs"));
}

// Every number of the table is read, kept in its range and written under its key.
TEST(ClusterFields, EachIsReadAndWritten) {
  for (const Field<Cluster> &field : clusterFields()) {
    const std::string path = field.path;
    const Cluster base = *parseCluster("a100-80g:8x2");
    Cluster changed = base;
    FieldPlace place = field.place(changed);
    double *value = nullptr;
    if (auto *number = std::get_if<double *>(&place)) value = *number;
    if (auto *rate = std::get_if<Rate>(&place)) value = &rate->rates[rate->precision];
    if (!value) continue;
    const double told = field.most <= 1 ? 0.375 : 48;
    *value = told * field.scale;
    auto again = parseClusterYaml(changed.yaml(), "again.yaml");
    ASSERT_TRUE(again) << path << ": " << again.status().message();
    EXPECT_EQ(again->yaml(), changed.yaml()) << path;
    EXPECT_NE(again->yaml(), base.yaml()) << path;
    *value = (field.least > 0 ? field.least / 2 : -1) * field.scale;
    if (*value < 0) continue; // is not told
    auto refused = parseClusterYaml(changed.yaml(), "again.yaml");
    EXPECT_THAT(refused.status().message(), HasSubstr("'" + path.substr(path.rfind('.') + 1) + "' of")) << path;
  }
}

TEST(ClusterFields, AreDocumented) {
  std::vector<std::string> paths;
  for (const Field<Cluster> &field : clusterFields()) {
    EXPECT_THAT(paths, ::testing::Not(::testing::Contains(field.path)));
    paths.emplace_back(field.path);
    EXPECT_THAT(documentFields(), HasSubstr("| `" + paths.back() + "` | "));
    EXPECT_TRUE(field.needed == Needed::Always || *field.standard) << field.path;
  }
}

TEST(Cluster, PresetsCountDevicesOfANodeFirst) {
  auto cluster = parseCluster("h100-80g:8x16"); // 16 nodes of 8
  ASSERT_TRUE(cluster);
  EXPECT_EQ(cluster->nodes, 16);
  EXPECT_EQ(cluster->devicesPerNode, 8);
  for (const std::string &kind : presetKinds()) EXPECT_TRUE(parseCluster(kind + ":8")) << kind;
}

TEST(Cluster, DevicesOfOneCpuShareIt) {
  auto one = parseCluster("cpu:1"), four = parseCluster("cpu:4");
  ASSERT_TRUE(one && four);
  EXPECT_DOUBLE_EQ(one->device.flopsAt("fp32"), 4 * four->device.flopsAt("fp32"));
  EXPECT_DOUBLE_EQ(one->device.memoryBandwidth, 4 * four->device.memoryBandwidth);
  EXPECT_DOUBLE_EQ(one->device.memoryBytes, 4 * four->device.memoryBytes);
}

TEST(Cluster, ErrorsNameFileAndLine) {
  auto message = [](const std::string &text) { return parseClusterYaml(text, "c.yaml").status().message(); };
  std::string head = "nodes: 1\ndevices_per_node: 8\n";
  EXPECT_THAT(message(head + "devise: {kind: a100-80g}\n"), HasSubstr("c.yaml:3: unknown key 'devise'"));
  EXPECT_THAT(message("nodes: 0\n"), HasSubstr("c.yaml:1: 'nodes'"));
  EXPECT_THAT(message("nodes: many\n"), HasSubstr("whole number"));
  EXPECT_THAT(message(head + "device: {kind: a100-80g, memory_gib: much}\n"), HasSubstr("c.yaml:3: 'memory_gib'"));
  EXPECT_THAT(message(head + "device: {kind: a100-80g, memory_gib: -1}\n"), HasSubstr("at least"));
  EXPECT_THAT(message(head + "device: {kind: mine}\n"), HasSubstr("lacks 'device.memory_gib'"));
  EXPECT_THAT(message(head + "device: {kind: mine, memory_gib: 1, memory_gbps: 1, tflops: {bf16: 1}}\n"),
              HasSubstr("lacks 'device.tflops.fp32'"));
  EXPECT_THAT(message(head + "device: {kind: mine, memory_gib: 1, memory_gbps: 1, tflops: {fp32: 1}}\n"),
              HasSubstr("lacks 'links.node.gbps'"));
  EXPECT_THAT(message(head + "device: {kind: a100-80g, overlap: 2}\n"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(message(head + "device: {kind: a100-80g, fused_row: 0.5}\n"), HasSubstr("must be 0 or at least 1"));
  EXPECT_THAT(message(head + "device: {kind: a100-80g}\nlinks: {node: {gbps: 1, topology: ring}}\n"),
              HasSubstr("c.yaml:4"));
  for (const char *key : {"core_share", "compute_efficiency", "bandwidth_efficiency", "batched_efficiency"})
    EXPECT_THAT(message(head + "device: {kind: a100-80g, " + key + ": 0}\n"), HasSubstr("from 1e-06 to 1"));
  EXPECT_THAT(message("nodes: 1000000\ndevices_per_node: 1000000\ndevice: {kind: a100-80g}\n"),
              HasSubstr("c.yaml:2: the cluster has more than 16777216 devices"));
  EXPECT_THAT(message("a: [1\n"), HasSubstr("not YAML"));
  EXPECT_THAT(message("- 1\n"), HasSubstr("mapping"));
  EXPECT_THAT(message(head + head), HasSubstr("appears twice"));
}

TEST(Cluster, WrongPresetsAreRefused) {
  for (const char *text : {"cpu:0", "cpu:x", "cpu:2x2", "a100-80g:", "a100-80g:8x", "a100-80g:9999999x9999999",
                           "z100:8", "no-such-file.yaml", "a100-80g:-1", "cpu:99999999999"})
    EXPECT_FALSE(parseCluster(text)) << text;
}

// Our kernel has no instructions of warp groups, and no TF32.
TEST(Cost, GroupedProductsHaveARateOfTheirOwn) {
  auto seconds = [](const char *devices, const char *precision, bool isGrouped) {
    LocalWork work{.flops = 1e15, .product = {1e4, 1e4, 1e4, 8}, .isGrouped = isGrouped};
    return operationSeconds(*parseCluster(devices), precision, work);
  };
  EXPECT_NEAR(seconds("h100-80g:1", "bf16", false) / seconds("h100-80g:1", "bf16", true), 0.629, 1e-3);
  EXPECT_EQ(seconds("a100-80g:1", "bf16", true), seconds("a100-80g:1", "bf16", false));
  EXPECT_EQ(seconds("a100-80g:1", "tf32", true), seconds("a100-80g:1", "fp32", false));
  EXPECT_EQ(seconds("cpu:1", "fp32", true), seconds("cpu:1", "fp32", false));
}

TEST(Cost, CollectivesFollowRingTrafficAndTopology) {
  auto cluster = parseCluster("a100-80g:8x4");
  ASSERT_TRUE(cluster);
  GroupShape node = groupAlong(*cluster, 8, 1), across = groupAlong(*cluster, 4, 8), all = groupAlong(*cluster, 32, 1);
  EXPECT_EQ(node.perNode, 8);
  EXPECT_EQ(across.perNode, 1);
  EXPECT_EQ(all.perNode, 8);
  double gigabyte = 1e9;
  // Measured, A100 with NVSwitch, two GPUs (vTrain's AR_GPU2 table): 44.2 us for 1 MiB, 5.30 ms for 993 MiB.
  GroupShape pair = groupAlong(*cluster, 2, 1);
  EXPECT_NEAR(collectiveSeconds(*cluster, Collective::AllReduce, pair, 1048576), 44.21e-6, 0.1 * 44.21e-6);
  EXPECT_NEAR(collectiveSeconds(*cluster, Collective::AllReduce, pair, 1041235968), 5.2999e-3, 0.1 * 5.2999e-3);
  // Never faster than the wire: 2 * 7/8 of 1 GB at 300 GB/s in the node, 2 * 3/4 at 25 GB/s between nodes.
  EXPECT_GT(collectiveSeconds(*cluster, Collective::AllReduce, node, gigabyte), 1.75 / 300);
  EXPECT_GT(collectiveSeconds(*cluster, Collective::AllReduce, across, gigabyte), 1.5 / 25);
  EXPECT_LT(collectiveSeconds(*cluster, Collective::AllReduce, across, gigabyte), 1.15 * 1.5 / 25);
  EXPECT_NEAR(collectiveSeconds(*cluster, Collective::AllGather, all, gigabyte), 31.0 / 32 / 200, 1e-3);
  EXPECT_DOUBLE_EQ(collectiveSeconds(*cluster, Collective::AllReduce, {1, 1}, gigabyte), 0);
  EXPECT_GE(collectiveSeconds(*cluster, Collective::AllReduce, node, 4), cluster->node.latency); // latency floor
}

// 128 devices in a ring, 8 in a node, 32 and 64 under a switch: what enters a switch comes over all its devices'
// shares.
TEST(Cost, AnAllReduceAcrossLevelsOfTheNetwork) {
  auto cluster = parseClusterYaml(oversubscribed, "c.yaml");
  ASSERT_TRUE(cluster);
  const GroupShape all = groupAlong(*cluster, 128, 1), two = groupAlong(*cluster, 2, 64),
                   under = groupAlong(*cluster, 4, 8);
  const double gigabyte = 1e9, reached = constants::networkEfficiency;
  // The slowest is the upper level: 64 shares of 20 Gb/s, against 32 of 66 and 8 of 200. Then it is each other.
  EXPECT_DOUBLE_EQ(collectiveSeconds(*cluster, Collective::AllReduce, all, gigabyte),
                   8 * 15e-6 + 2 * 127.0 / 128 * gigabyte / (64 * 2.5e9 * reached));
  cluster->levels[1].bandwidth = 25e9;
  EXPECT_DOUBLE_EQ(collectiveSeconds(*cluster, Collective::AllReduce, all, gigabyte),
                   8 * 15e-6 + 2 * 127.0 / 128 * gigabyte / (8 * 25e9 * reached));
  cluster->levels[1].bandwidth = 1e9;
  EXPECT_DOUBLE_EQ(collectiveSeconds(*cluster, Collective::AllReduce, all, gigabyte),
                   8 * 15e-6 + 2 * 127.0 / 128 * gigabyte / (64 * 1e9 * reached));
  cluster->levels[0].bandwidth = 1.5e9;
  EXPECT_DOUBLE_EQ(collectiveSeconds(*cluster, Collective::AllReduce, all, gigabyte),
                   8 * 15e-6 + 2 * 127.0 / 128 * gigabyte / (32 * 1.5e9 * reached));
  // One rank under each of two switches, and four nodes under one.
  EXPECT_DOUBLE_EQ(collectiveSeconds(*cluster, Collective::AllReduce, two, gigabyte),
                   2 * 15e-6 + gigabyte / (1e9 * reached));
  EXPECT_DOUBLE_EQ(collectiveSeconds(*cluster, Collective::AllReduce, under, gigabyte),
                   3 * 12e-6 + 1.5 * gigabyte / (25e9 * reached));
  // Half of what a rank sends to all others goes to the other switch, over its own share.
  EXPECT_DOUBLE_EQ(collectiveSeconds(*cluster, Collective::AllToAll, all, gigabyte),
                   4 * 15e-6 + 127.0 / 128 / 128 * gigabyte / (1e9 * reached) * 64 / 128);
  EXPECT_DOUBLE_EQ(sendSeconds(*cluster, tierBetween(*cluster, 0, 127), gigabyte), 15e-6 + 1 / reached);
  EXPECT_DOUBLE_EQ(sendSeconds(*cluster, tierBetween(*cluster, 31, 32), gigabyte), 12e-6 + 1 / 1.5 / reached);
  EXPECT_DOUBLE_EQ(sendSeconds(*cluster, tierBetween(*cluster, 7, 8), gigabyte), 12e-6 + 1 / 25.0 / reached);
  EXPECT_EQ(tierBetween(*cluster, 6, 7), inNode);
}

// A file that gives half the bandwidth of the preset's card a device has two devices a card.
TEST(Cluster, DevicesThatShareANetworkCard) {
  auto shared = [](const std::string &kind, const std::string &network) {
    auto cluster = parseClusterYaml(
        "nodes: 2\ndevices_per_node: 8\ndevice: {kind: " + kind + "}\nlinks: {network: {" + network + "}}\n", "c.yaml");
    return cluster ? cluster->networkSharedBy : 0;
  };
  EXPECT_EQ(shared("a100-80g", "gbps: 200"), 1);
  EXPECT_EQ(shared("a100-80g", "gbps: 100"), 2);
  EXPECT_EQ(shared("a100-80g", "gbps: 5"), 8); // no more than there are
  EXPECT_EQ(shared("a100-80g", "gbps: 100, shared_by: 4"), 4);
  EXPECT_EQ(parseCluster("v100-16g:8x2")->networkSharedBy, 2); // DGX-1: four cards of 100 Gb/s
}

TEST(Cost, GroupsThatCrossSharedCardsAreSlower) {
  auto cluster = parseCluster("a100-80g:8x4");
  ASSERT_TRUE(cluster);
  auto rate = [&](int64_t sharedBy, GroupShape group) {
    Cluster other = *cluster;
    other.network = {12.5e9, 0};
    other.networkSharedBy = sharedBy;
    const double n = double(group.size);
    return 2 * (n - 1) / n * 1e9 / collectiveSeconds(other, Collective::AllReduce, group, 1e9) / 12.5e9;
  };
  for (GroupShape group : {GroupShape{4, 1}, {32, 8}}) EXPECT_NEAR(rate(2, group), rate(1, group), 1e-9);
  for (GroupShape group : {GroupShape{8, 2}, {16, 4}}) EXPECT_LT(rate(2, group), rate(1, group) / 2);
  EXPECT_NEAR(rate(8, {8, 2}), rate(1, {8, 2}), 1e-9); // one card for all: nothing to cross
}

// The mean of the latest of n normally distributed times, grows from 8 to 64 as what is counted does.
TEST(Cost, WaitingGrowsAsTheLatestOfSeveral) {
  auto cluster = parseCluster("a100-80g:8x8,software=megatron-2021");
  ASSERT_TRUE(cluster);
  auto wait = [&](int64_t size) { return waitSeconds(*cluster, Collective::AllReduce, groupAlong(*cluster, size, 1)); };
  EXPECT_EQ(wait(1), 0);
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  auto latest = [&](int64_t size) {
    double sum = 0;
    for (int trial = 0; trial < 20000; ++trial) {
      double most = -1e30;
      for (int64_t i = 0; i < size; ++i) most = std::max(most, normal(random));
      sum += most;
    }
    return sum / 20000;
  };
  // The form is the limit of many: of few it is too high throughout, so their quotient is what grows alike.
  EXPECT_NEAR(wait(64) / wait(8), latest(64) / latest(8), 0.25 * latest(64) / latest(8));
  EXPECT_NEAR(waitSeconds(*cluster, Collective::AllGather, {8, 8}) * 2, wait(8), 1e-12);
  EXPECT_EQ(waitSeconds(*parseCluster("cpu:4"), Collective::AllReduce, {4, 4}), 0);
}

TEST(Constraints, FlagsAreChecked) {
  auto cluster = parseCluster("cpu:4");
  ASSERT_TRUE(cluster);
  auto message = [&](const SplitFlags &flags) { return parseConstraints(flags, *cluster).status().message(); };
  EXPECT_THAT(message({.mesh = "dp=3"}), HasSubstr("divide the 4 devices"));
  EXPECT_THAT(message({.mesh = "dp=2,dp=2"}), HasSubstr("twice"));
  EXPECT_THAT(message({.mesh = "pp=2,dp=3"}), HasSubstr("divide the 4 devices"));
  EXPECT_THAT(message({.mesh = "pp=2", .schedule = "none"}), HasSubstr("without pipeline"));
  EXPECT_THAT(message({.schedule = "2f2b"}), HasSubstr("unknown schedule '2f2b'"));
  EXPECT_THAT(message({.mesh = "pp=2", .balance = "1,1,1"}), HasSubstr("3 stages are asked for"));
  EXPECT_THAT(message({.splitAt = {"a"}, .balance = "1,1"}), HasSubstr("both say"));
  EXPECT_THAT(message({.balance = "1,0"}), HasSubstr("'0' is not a number"));
  EXPECT_EQ(parseConstraints({.splitAt = {"a", "b:after"}}, *cluster)->pp, 3);
  EXPECT_EQ(parseConstraints({.schedule = "interleaved:2", .balance = "1,1,1,1"}, *cluster)->pp, 2);
  EXPECT_THAT(message({.mesh = "xp=2"}), HasSubstr("no axis 'xp'"));
  EXPECT_THAT(message({.mesh = "dp"}), HasSubstr("AXIS=SIZE"));
  EXPECT_THAT(message({.zero = "4"}), HasSubstr("0, 1, 2 or 3"));
  EXPECT_THAT(message({.microbatches = "none"}), HasSubstr("from 1 up"));
  EXPECT_THAT(message({.offload = "disk"}), HasSubstr("none, optimizer, activations or all"));
  EXPECT_THAT(message({.like = "zero2-offload", .offload = "none"}), HasSubstr("contradict"));
  EXPECT_THAT(message({.recompute = "some"}), HasSubstr("none, activations, selective or full"));
  EXPECT_THAT(message({.mesh = "pp=2", .recompute = "full:except-last", .offload = "activations"}),
              HasSubstr("not offloaded yet"));
  EXPECT_THAT(message({.mesh = "pp=2", .microbatches = "1", .recompute = "full:except-last"}),
              HasSubstr("the only one"));
  EXPECT_THAT(message({.like = "ddpp"}), HasSubstr("the presets are ddp"));
  EXPECT_THAT(message({.zero = "1", .like = "ddp"}), HasSubstr("contradict"));
  EXPECT_THAT(message({.pins = {"w"}}), HasSubstr("GLOB="));
  EXPECT_THAT(message({.pins = {"w=tp,tp"}}), HasSubstr("twice"));
  for (const std::string &preset : presetNames()) {
    auto parsed = parseConstraints({.like = preset}, *cluster);
    if (!parsed) EXPECT_THAT(parsed.status().message(), HasSubstr("--like 3d needs tp")) << preset;
  }
  auto parsed = parseConstraints({.mesh = "tp=2,pp=1", .zero = "3"}, *cluster);
  ASSERT_TRUE(parsed) << parsed.status().message();
  EXPECT_EQ(parsed->tp, 2);
  EXPECT_FALSE(parsed->dp);
}

// Bytes kept between the passes come back after up to twice as much as is kept: nothing to pay where that stays in
// the cache, half of it from memory where as much is kept as the cache holds.
TEST(Caches, KeptBytesComeFromFurtherAway) {
  Cluster cluster = *parseCluster("cpu:1");
  Device &device = cluster.device;
  device.memoryBandwidth = 10e9;
  device.bandwidthEfficiency = device.kernelTraffic = 1;
  device.caches = {{1 << 20, 100e9}};
  LocalWork work;
  work.memoryBound = true;
  work.bytes = work.kept = 1 << 16;
  const double more = work.kept * (1 / 10e9 - 1 / 100e9);
  auto seconds = [&](double kept) { return keptSeconds(cluster, work, device.meanSecondsPerByte(2 * kept)); };
  EXPECT_DOUBLE_EQ(seconds(1 << 19), 0); // distances up to 1 MiB
  EXPECT_DOUBLE_EQ(seconds(1 << 20), more / 2);
  EXPECT_DOUBLE_EQ(seconds(1 << 21), more * 3 / 4);
  // Optimizer state comes by once a step: a small parameter's too comes from memory where all of it is large.
  work.kept = 0;
  const double near = operationSeconds(cluster, "fp32", work);
  work.distance = 1 << 22;
  EXPECT_NEAR(operationSeconds(cluster, "fp32", work) - near, work.bytes * (1 / 10e9 - 1 / 100e9), 1e-12);
  device.caches.clear();
  work.kept = work.bytes;
  EXPECT_EQ(seconds(1 << 21), 0);
}

// Bytes that others push out of a cache come from memory: exp(-age / hold) is left, and the mean of that over ages up
// to T is hold / T (1 - exp(-T / hold)).
TEST(Caches, WhatLiesUntouchedLeaves) {
  Device device = parseCluster("cpu:1")->device;
  device.memoryBandwidth = 10e9;
  device.bandwidthEfficiency = 1;
  device.caches = {{1 << 20, 100e9}};
  const double near = 1 / 100e9, far = 1 / 10e9 - near;
  EXPECT_DOUBLE_EQ(device.secondsPerByte(1 << 16, 1), near); // nobody else is there
  device.cacheHoldSeconds = 2e-3;
  EXPECT_DOUBLE_EQ(device.secondsPerByte(1 << 16, 0), near);
  EXPECT_NEAR(device.secondsPerByte(1 << 16, 2e-3), near + far * (1 - std::exp(-1)), 1e-16);
  EXPECT_NEAR(device.secondsPerByte(1 << 16, 1), near + far, 1e-16);
  EXPECT_DOUBLE_EQ(device.secondsPerByte(1 << 24, 2e-3), near + far); // it was in none
  EXPECT_NEAR(device.meanSecondsPerByte(1 << 20, 6e-3), near + far * (1 - (1 - std::exp(-3)) / 3), 1e-3 * far);
  // Optimizer state, which a whole step leaves alone.
  Cluster cluster = *parseCluster("cpu:1");
  cluster.device = device;
  LocalWork work;
  work.memoryBound = work.isUpdate = true;
  work.bytes = 1 << 16;
  const double soon = operationSeconds(cluster, "fp32", work);
  work.age = 2e-3;
  EXPECT_NEAR(operationSeconds(cluster, "fp32", work) - soon, work.bytes * far * (1 - std::exp(-1)), 1e-12);
}

// A kernel that one thread does wakes no others.
TEST(Cost, SmallKernelsStartOnOneThread) {
  Cluster cluster = *parseCluster("cpu:1");
  LocalWork work;
  work.memoryBound = true;
  work.kernels = 3;
  const double shared = operationSeconds(cluster, "fp32", work);
  work.isSolo = true;
  const double alone = operationSeconds(cluster, "fp32", work);
  EXPECT_NEAR(shared - alone, 3 * (cluster.device.launchSeconds - cluster.device.soloLaunchSeconds), 1e-15);
  EXPECT_LT(alone, shared / 4);
  EXPECT_DOUBLE_EQ(parseCluster("a100-80g:8")->device.soloLaunchSeconds,
                   parseCluster("a100-80g:8")->device.launchSeconds);
}

// Weights that lie further away than their own size says take that long to be read.
TEST(Caches, ProductsReadWeightsFromAfar) {
  Cluster cluster = *parseCluster("cpu:1");
  Device &device = cluster.device;
  device.memoryBandwidth = 10e9;
  device.bandwidthEfficiency = device.productTraffic = 1;
  device.productWriteTraffic = 0.5;
  device.caches = {{1 << 20, 100e9}};
  LocalWork work;
  work.product = {16, 64, 64};
  work.flops = 2 * 16 * 64 * 64;
  work.read = work.written = 4 * 64 * 64;
  const double near = operationSeconds(cluster, "fp32", work);
  work.readSeconds = 1 / 10e9;
  const double more = work.read * (1 / 10e9 - 1 / 100e9);
  EXPECT_NEAR(operationSeconds(cluster, "fp32", work) - near, more, 1e-15);
  work.writtenSeconds = 1 / 10e9;
  EXPECT_NEAR(operationSeconds(cluster, "fp32", work) - near, 1.5 * more, 1e-15);
}

// With 8 channels in blocks of 16, half of the work is for nothing on either side that is filled up.
TEST(Convolutions, BlocksAreFilledUp) {
  auto blocked = [](ConvolutionPass pass, double in, double out, double groups) {
    return blockedBy(16, pass, {in, out, groups, 1000, 2000, 10});
  };
  using enum ConvolutionPass;
  EXPECT_EQ(blocked(Forward, 16, 32, 1).work, 1);
  EXPECT_EQ(blocked(Forward, 16, 32, 1).ordered, 2 * 1000 + 2 * 2000 + 20); // there and back, all three
  EXPECT_EQ(blocked(Forward, 3, 8, 1).work, 2);                             // colours are read as they lie
  EXPECT_EQ(blocked(Forward, 3, 8, 1).ordered, 3 * 2000 + 20);
  EXPECT_EQ(blocked(GradWeight, 3, 8, 1).work, 2);
  EXPECT_EQ(blocked(GradInput, 4, 8, 1).work, 8);
  EXPECT_EQ(blocked(Forward, 24, 16, 1).work, 32.0 / 24);
  // Sixteen groups of four channels: one side, but both where the weights' gradient is made.
  EXPECT_EQ(blocked(Forward, 4, 4, 16).work, 4);
  EXPECT_EQ(blocked(GradInput, 4, 4, 16).work, 4);
  EXPECT_EQ(blocked(GradWeight, 4, 4, 16).work, 16);
  EXPECT_EQ(blocked(GradWeight, 1, 1, 64).work, 1); // a filter for each channel
  EXPECT_EQ(blocked(Forward, 4, 4, 16).ordered, 2 * 1000 + 2 * 2000 + 20);
}

// Experts' products are as many with weights of their own, where others of a batch share a start.
TEST(Cost, ExpertsCopyTheirWeights) {
  Cluster cluster = *parseCluster("cpu:1");
  cluster.device.batchedEfficiency = 0.5;
  cluster.device.batchStartSeconds = 1e-8;
  cluster.device.productStartSeconds = 1e-6;
  cluster.device.expertStartSeconds = 3e-7;
  cluster.device.productReadSeconds = 1e-9;
  LocalWork one;
  one.product = {32, 64, 64};
  one.flops = 2 * 32 * 64 * 64;
  one.read = 4 * 64 * 64;
  LocalWork four = one;
  four.product.batch = 4;
  four.flops *= 4;
  four.read *= 4;
  const double each = operationSeconds(cluster, "fp32", one) - 1e-6;
  four.hasOwnWeights = true;
  EXPECT_NEAR(operationSeconds(cluster, "fp32", four), 1e-6 + 4 * (each + 3e-7), 1e-15);
  four.hasOwnWeights = false;
  const double working = each - one.read * 1e-9;
  EXPECT_NEAR(operationSeconds(cluster, "fp32", four), 1e-6 + 4 * (2 * working + 1e-8), 1e-15);
}

} // namespace
} // namespace cleave::planner
