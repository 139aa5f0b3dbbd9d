// State and activations in the hosts' memory, against the bytes that travel.
#include "compiler/planner/search/driver/search.h"
#include "test/unit/planner/problem_builder.h"
#include <gmock/gmock.h>

namespace cleave::planner {
namespace {

using testing::gpt;
using testing::mlp;

// Bytes of parameters whose optimizer state on a device, of so many parts, is less than a page: it does not leave.
double stateOfLessThanAPage(const Problem &problem, int64_t parts) {
  double bytes = 0;
  for (const Tensor &tensor : problem.tensors)
    if (const double own = double(tensor.elements()) * tensor.optimizerBytes / double(parts);
        tensor.kind == TensorKind::Parameter && own < 4096)
      bytes += own;
  return bytes;
}

// State in the hosts' memory: 8 bytes a parameter each way at once at the link's rate, beside the updates; what is on
// the device is what is under way.
TEST(HostMemory, OffloadedStateIsPricedByTheHostLink) {
  Problem problem = mlp(32, 512, 1024, 256);
  Result<Cluster> cluster = parseClusterYaml("nodes: 1\ndevices_per_node: 2\ndevice: {kind: a100-80g, overlap: 0.5}\n"
                                             "links: {host: {gbps: 8, latency_us: 0, shared_by: 2}}\n",
                                             "c.yaml");
  ASSERT_TRUE(cluster) << cluster.status().message();
  auto decide = [&](const SplitFlags &flags) {
    Result<Decision> decision = solve(problem, *cluster, *parseConstraints(flags, *cluster), {.alternatives = false});
    EXPECT_TRUE(decision) << decision.status().message();
    return *decision;
  };
  double state = 0;
  for (const Tensor &tensor : problem.tensors)
    if (tensor.kind == TensorKind::Parameter) state += double(tensor.elements()) * tensor.optimizerBytes;
  for (const char *zero : {"0", "1", "2"}) {
    SplitFlags flags{.mesh = "dp=2", .zero = zero};
    Decision there = decide(flags);
    flags.offload = "optimizer";
    Decision here = decide(flags);
    double held = state / (*zero == '0' ? 1 : 2);
    EXPECT_EQ(there.predicted.memory.host, 0);
    EXPECT_NEAR(there.predicted.memory.optimizer, held, 0.02 * held);
    const double stays = stateOfLessThanAPage(problem, *zero == '0' ? 1 : 2);
    EXPECT_GT(stays, 0);
    EXPECT_EQ(here.predicted.memory.optimizer, stays);
    EXPECT_NEAR(here.predicted.memory.host, held - stays, 0.02 * held);
    // 8 Gbit/s for two devices, of which 0.8 are reached.
    EXPECT_NEAR(here.predicted.hostSeconds, here.predicted.memory.host / (0.8 * 8e9 / 8 / 2), 1e-12);
    EXPECT_LT(here.predicted.exposedHostSeconds, here.predicted.hostSeconds);
    EXPECT_NEAR(here.predicted.stepSeconds - there.predicted.stepSeconds, here.predicted.exposedHostSeconds, 1e-12);
    EXPECT_EQ(here.offload, Offload::Optimizer);
  }
}

// Activations travel both ways for every microbatch; passes hide what they are long enough for.
TEST(HostMemory, OffloadedActivationsArePricedByTheHostLink) {
  Problem problem = gpt({8, 64, 128, 8, 6, 512});
  auto decide = [&](double gbps, const SplitFlags &flags) {
    Result<Cluster> cluster = parseClusterYaml(
        "nodes: 1\ndevices_per_node: 1\ndevice: {kind: a100-80g}\nlinks: {host: {gbps: " + std::to_string(gbps) +
            ", latency_us: 0}}\n",
        "c.yaml");
    EXPECT_TRUE(cluster) << cluster.status().message();
    Result<Decision> decision = solve(problem, *cluster, *parseConstraints(flags, *cluster), {.alternatives = false});
    EXPECT_TRUE(decision) << decision.status().message();
    return *decision;
  };
  for (const char *microbatches : {"1", "4"}) {
    SplitFlags flags{.microbatches = microbatches, .recompute = "none"};
    Decision there = decide(8, flags);
    flags.offload = "activations";
    Decision slow = decide(8, flags), fast = decide(8e6, flags);
    const MemoryBreakdown &memory = slow.predicted.memory;
    EXPECT_LT(memory.activations, 0.5 * there.predicted.memory.activations);
    // The bytes that leave, those that are too near the loss, and two buckets on their way, of a sixteenth or of one
    // kernel's operands.
    const double stays = there.predicted.memory.activations - memory.host;
    EXPECT_GE(stays, 0);
    EXPECT_GE(memory.activations, stays + memory.host / 8 * (1 - 1e-9));
    EXPECT_LE(memory.activations, stays + memory.host / 3);
    EXPECT_EQ(memory.optimizer, there.predicted.memory.optimizer);
    double both = 2 * memory.host * std::stod(microbatches) / (0.8 * 8e9 / 8);
    EXPECT_NEAR(slow.predicted.hostSeconds, both, 1e-9 * both);
    EXPECT_GT(slow.predicted.exposedHostSeconds, 0);
    EXPECT_NEAR(slow.predicted.stepSeconds - there.predicted.stepSeconds, slow.predicted.exposedHostSeconds,
                1e-9 * slow.predicted.stepSeconds);
    EXPECT_EQ(fast.predicted.exposedHostSeconds, 0);
    EXPECT_NEAR(fast.predicted.stepSeconds, there.predicted.stepSeconds, 1e-9 * there.predicted.stepSeconds);
    flags.offload = "all";
    EXPECT_EQ(decide(8, flags).predicted.memory.optimizer, stateOfLessThanAPage(problem, 1));
  }
}

// All that a rank of a pipeline keeps of its microbatches in flight is there; here is part of one.
TEST(HostMemory, OffloadedActivationsOfStages) {
  Problem problem = gpt({8, 64, 128, 8, 6, 512});
  Result<Cluster> cluster = parseClusterYaml("nodes: 1\ndevices_per_node: 2\ndevice: {kind: a100-80g}\n", "c.yaml");
  ASSERT_TRUE(cluster) << cluster.status().message();
  auto decide = [&](const std::string &schedule, const std::string &offload) {
    SplitFlags flags{
        .mesh = "pp=2", .microbatches = "8", .schedule = schedule, .recompute = "none", .offload = offload};
    Result<Decision> decision = solve(problem, *cluster, *parseConstraints(flags, *cluster), {.alternatives = false});
    EXPECT_TRUE(decision) << decision.status().message();
    return decision->predicted;
  };
  for (auto [schedule, slots] : {std::pair{"1f1b", 2.0}, std::pair{"gpipe", 8.0}}) {
    Predicted none = decide(schedule, "none"), moved = decide(schedule, "activations");
    const double tokens = slots * 64 * 8; // one sample's, which the embedding's gradient reads: inputs stay
    EXPECT_NEAR(moved.memory.host + tokens, none.memory.activations, 1e-9 * moved.memory.host) << schedule;
    EXPECT_LT(moved.memory.activations - tokens, 0.5 * moved.memory.host / slots) << schedule;
    EXPECT_GE(moved.memory.activations, moved.memory.host / slots / 8) << schedule;
    EXPECT_GT(moved.stepSeconds, none.stepSeconds);
  }
}

TEST(HostMemory, HostsAreUsedWhereNothingElseFitsAndAsFarAsTheyGo) {
  Problem problem = gpt({2, 16, 512, 8, 4, 512});
  auto decide = [&](double gib, double host, const SplitFlags &flags = {}) {
    Result<Cluster> cluster =
        parseClusterYaml("nodes: 1\ndevices_per_node: 1\ndevice: {kind: a100-80g, memory_gib: " + std::to_string(gib) +
                             "}\nhost_memory_gib: " + std::to_string(host),
                         "c.yaml");
    return solve(problem, *cluster, *parseConstraints(flags, *cluster), {.alternatives = false});
  };
  double least = decide(80, 1)->predicted.memory.total() / (1 << 30);
  double moved = decide(80, 1, {.offload = "optimizer"})->predicted.memory.total() / (1 << 30);
  ASSERT_LT(moved, 0.9 * least);
  double between = (moved + least) / 2 / 0.94;
  EXPECT_EQ(decide(80, 1)->offload, Offload::None);
  Result<Decision> chosen = decide(between, 1);
  ASSERT_TRUE(chosen) << chosen.status().message();
  EXPECT_EQ(chosen->offload, Offload::Optimizer);
  EXPECT_THAT(decide(between, 0).status().message(), ::testing::HasSubstr("--offload optimizer: "));
  EXPECT_THAT(decide(between, 1, {.offload = "none"}).status().message(),
              ::testing::HasSubstr("--offload optimizer: "));
  EXPECT_FALSE(decide(between, 1e-5)) << "a host without room";
}

} // namespace
} // namespace cleave::planner
