#include "runtime/base/cpu_features.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/comm/local.h"
#include "runtime/engine/comm/null.h"
#include "runtime/engine/device/cpu/kernel_object.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/plan/plan_file.h"
#include "test/unit/runtime/mlp_weights.h"
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave::runtime::test {
namespace {

std::unique_ptr<Executor> open(const plan::Plan &plan, ExecutorOptions options = {}) {
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  Result<std::unique_ptr<Executor>> executor = Executor::create(plan, std::make_unique<LocalFabric>(*mesh), options);
  EXPECT_TRUE(executor.isOk()) << executor.status().message();
  return executor ? std::move(*executor) : nullptr;
}

std::vector<double> train(Executor &executor, const MlpShape &shape, int steps) {
  MlpData data = mlpData(shape);
  loadWeights(executor, data);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const std::byte *inputs[] = {reinterpret_cast<const std::byte *>(data.x.data()),
                                 reinterpret_cast<const std::byte *>(data.t.data())};
    auto outputs = executor.run("step", inputs, step);
    EXPECT_TRUE(outputs.isOk()) << outputs.status().message();
    if (!outputs) break;
    losses.push_back(outputs->at("loss"));
  }
  return losses;
}

class Mlp : public testing::TestWithParam<std::tuple<int, int, bool>> {};

TEST_P(Mlp, TrainsAsThePlainLoopsDo) {
  auto [dp, tp, asynchronous] = GetParam();
  MlpShape shape{.dp = dp, .tp = tp, .asynchronous = asynchronous};
  plan::Plan plan = mlpPlan(shape);
  std::unique_ptr<Executor> executor = open(plan);
  ASSERT_TRUE(executor);
  std::vector<double> losses = train(*executor, shape, 20), expected = mlpLosses(shape, mlpData(shape), 20);
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5 * expected[i]) << "step " << i;
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}
INSTANTIATE_TEST_SUITE_P(Meshes, Mlp,
                         testing::Values(std::tuple{1, 1, true}, std::tuple{2, 1, true}, std::tuple{1, 2, true},
                                         std::tuple{2, 2, true}, std::tuple{2, 2, false}, std::tuple{8, 1, true},
                                         std::tuple{2, 4, true}));

TEST(Executor, GivesTheSameBitsEveryTime) {
  MlpShape shape{.dp = 2, .tp = 2};
  plan::Plan plan = mlpPlan(shape);
  std::vector<double> first = train(*open(plan), shape, 10);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(train(*open(plan), shape, 10), first);
}

// The first rank computes on the caller's thread.
TEST(Executor, RefusesKernelsForMoreThanThisCpuHas) {
  plan::Plan plan = mlpPlan({});
  EXPECT_TRUE(checkKernelTarget(plan));
  for (const std::string &feature : cpuFeatures(cpuLevel())) plan.add_kernel_features(feature);
  EXPECT_TRUE(checkKernelTarget(plan));
  plan.set_kernel_target("of-tomorrow");
  plan.add_kernel_features("avx4096");
  EXPECT_THAT(checkKernelTarget(plan).message(),
              ::testing::HasSubstr("compiled for the CPU of-tomorrow, this one lacks avx4096: "));
  plan.set_kernel_target("");
  EXPECT_THAT(checkKernelTarget(plan).message(), ::testing::HasSubstr("compile it again"));
}

TEST(Executor, LeavesTheCallersThreadsAsTheyWere) {
  CallersThreads restore;
  setThreads(3);
  MlpShape shape{.dp = 2};
  plan::Plan plan = mlpPlan(shape);
  std::unique_ptr<Executor> executor = open(plan, {.threads = 1});
  EXPECT_EQ(currentThreads(), 3);
  train(*executor, shape, 2);
  EXPECT_EQ(currentThreads(), 3);
}

TEST(Executor, NonFiniteLossEndsTheRunAndSaysWhere) {
  MlpShape shape{.dp = 2, .lr = 1e30};
  plan::Plan plan = mlpPlan(shape);
  std::unique_ptr<Executor> executor = open(plan);
  MlpData data = mlpData(shape);
  loadWeights(*executor, data);
  const std::byte *inputs[] = {reinterpret_cast<const std::byte *>(data.x.data()),
                               reinterpret_cast<const std::byte *>(data.t.data())};
  Status failure;
  for (int step = 0; step < 5 && failure; ++step) failure = executor->run("step", inputs, step).status();
  EXPECT_EQ(failure.exitStatus(), 4);
  EXPECT_THAT(
      failure.message(),
      testing::MatchesRegex("rank [01], step [0-9]+, command 'loss' \\(check_finite\\): the loss is not finite.*"));
}

// No memory is touched, and devices of one program are one.
TEST(Executor, NullDeviceRunsNothing) {
  MlpShape shape{.dp = 1024, .tp = 16, .batch = 2048};
  plan::Plan plan = mlpPlan(shape);
  plan.mutable_programs(0)->set_arena_bytes(int64_t(1) << 40);
  auto executor =
      Executor::create(plan, std::make_unique<NullFabric>(plan, *meshOf(plan.mesh())), {.null = true, .threads = 1});
  ASSERT_TRUE(executor.isOk()) << executor.status().message();
  EXPECT_EQ((*executor)->devices(), std::vector<int64_t>{0});
  EXPECT_EQ((*executor)->peakBytes(), int64_t(1) << 40);
  const std::byte *inputs[] = {nullptr, nullptr};
  auto outputs = (*executor)->run("step", inputs, 0);
  EXPECT_TRUE(outputs.isOk()) << outputs.status().message();
}

TEST(Executor, WritesATrace) {
  MlpShape shape{.dp = 2};
  plan::Plan plan = mlpPlan(shape);
  std::unique_ptr<Executor> executor = open(plan, {.trace = {.recordsPerLane = 100}});
  train(*executor, shape, 2);
  std::string path = testing::TempDir() + "trace.json";
  Status status = executor->writeTrace(path);
  EXPECT_TRUE(status.isOk()) << status.message();
}

} // namespace
} // namespace cleave::runtime::test
