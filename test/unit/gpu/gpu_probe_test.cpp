// The probe's plans on the fake of NVIDIA's libraries: what they do, and that they can be timed.
#include "compiler/calibrate/machine_cluster.h"
#include "compiler/trials/gpu_trials.h"
#include "runtime/engine/probe/gpu_machine.h"
#include "test/unit/cuda/plan/for_fake_gpu.h"
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>

namespace cleave {
namespace {

using Kind = runtime::GpuTrial::Kind;

class GpuProbe : public testing::Test {
protected:
  GpuProbe() {
    ::setenv("CLEAVE_CUDA_LIBRARIES", FAKE_LIBRARIES, 1);
    ::setenv("FAKE_CUDA_GPUS", "2", 1);
    ::setenv("XDG_CACHE_HOME", testing::TempDir().c_str(), 1); // for the choices of algorithms
  }
  // As if its memory were this small: products of 32, so that the fake is done soon.
  const runtime::GpuDescription gpu{"NVIDIA H100 80GB HBM3", 90, 1 << 20};
};

TEST_F(GpuProbe, FindsTheGpusOfTheDriver) {
  std::vector<runtime::GpuDescription> gpus = runtime::findGpus();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[1].name, "Fake GPU");
  EXPECT_EQ(gpus[1].capability, 90);
  EXPECT_GT(gpus[1].memoryBytes, 0);
}

// A trial times the work that its figure is about.
TEST_F(GpuProbe, TrialsDoOneThing) {
  auto trials = gpuTrials(gpu, 2);
  ASSERT_TRUE(trials) << trials.status().message();
  EXPECT_EQ(trials->front().kind, Kind::Launch);
  for (const runtime::GpuTrial &trial : *trials) {
    const auto &commands = trial.plan->programs(0).fragments(0).commands();
    int products = 0, kernels = 0, collectives = 0;
    for (const plan::Command &command : commands) {
      products += command.has_contract();
      kernels += command.has_launch();
      collectives += command.has_collective();
    }
    const bool isProduct = trial.kind == Kind::Product, reduces = trial.kind == Kind::AllReduce;
    EXPECT_EQ(products, isProduct ? 1 : 0);
    EXPECT_EQ(kernels, isProduct || reduces ? 0 : 1);
    EXPECT_EQ(collectives, reduces ? trial.times : 0);
    EXPECT_LE(commands.size(), products + kernels + collectives + (reduces ? 1 : 0)); // a copy into the result
  }
}

TEST_F(GpuProbe, MeasuresAndPlansForWhatItMeasured) {
  auto trials = gpuTrials(gpu, 2, true);
  ASSERT_TRUE(trials) << trials.status().message();
  // Two products of each precision: every one takes the fake half a second.
  std::map<std::string, int> products;
  std::erase_if(*trials, [&](const runtime::GpuTrial &trial) {
    return trial.kind == Kind::Product && ++products[trial.precision] > 2;
  });
  for (runtime::GpuTrial &trial : *trials) {
    auto onFake = std::make_shared<plan::Plan>(*trial.plan);
    makeForFakeGpu(*onFake);
    trial.plan = onFake;
  }
  int lines = 0;
  auto figures = runtime::GpuProbe{gpu, 2, *trials, [&](const std::string &) { ++lines; }}.measure();
  ASSERT_TRUE(figures) << figures.status().message();
  EXPECT_EQ(lines, int(trials->size()) + 2); // the GPU's own, and that of the host's memory
  EXPECT_EQ(figures->products.size(), 4u);   // fp32, tf32, bf16, fp16
  EXPECT_EQ(figures->collectives.size(), 4u);
  planner::Cluster cluster = planner::clusterOf(*figures);
  auto again = planner::parseClusterYaml(cluster.yaml(), "probed.yaml");
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(again->yaml(), cluster.yaml());
  EXPECT_EQ(again->numDevices(), 2);
  EXPECT_EQ(cluster.device.kind, "sm_90"); // no preset has 1 MiB
}

} // namespace
} // namespace cleave
