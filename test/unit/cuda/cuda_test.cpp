#include "runtime/engine/comm/cuda/reduction_kernels.h"
#include "runtime/engine/comm/cuda/strided_pieces.h"
#include "runtime/engine/comm/local.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/staged_inputs.h"
#include "runtime/plan/verify/verify.h"
#include "runtime/train/state/weights.h"
#include "test/unit/cuda/fake_gpu.h"
#include "test/unit/runtime/mlp_weights.h"
#include "test/unit/runtime/pipeline_plan.h"
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <unistd.h>

namespace cleave::runtime::test {
namespace {

Result<std::unique_ptr<Executor>> tryOpen(const plan::Plan &plan, ExecutorOptions options = {}) {
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  return Executor::create(plan, std::make_unique<LocalFabric>(*mesh), options);
}
std::unique_ptr<Executor> open(const plan::Plan &plan, ExecutorOptions options = {}) {
  Result<std::unique_ptr<Executor>> executor = tryOpen(plan, options);
  EXPECT_TRUE(executor.isOk()) << executor.status().message();
  return executor ? std::move(*executor) : nullptr;
}

struct Trained {
  std::vector<double> losses;
  Status status;
};
Trained train(Executor &executor, const MlpShape &shape, int steps) {
  MlpData data = mlpData(shape);
  loadWeights(executor, data);
  Trained trained;
  for (int step = 0; step < steps; ++step) {
    const std::byte *inputs[] = {reinterpret_cast<const std::byte *>(data.x.data()),
                                 reinterpret_cast<const std::byte *>(data.t.data())};
    auto outputs = executor.run("step", inputs, step);
    trained.status = outputs.status();
    if (!outputs) break;
    trained.losses.push_back(outputs->at("loss"));
  }
  return trained;
}
// Those of the plain loops.
void expectLosses(Executor &executor, const MlpShape &shape, int steps) {
  Trained trained = train(executor, shape, steps);
  ASSERT_TRUE(trained.status.isOk()) << trained.status.message();
  std::vector<double> expected = mlpLosses(shape, mlpData(shape), steps);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(trained.losses[i], expected[i], 1e-5 * expected[i]) << "step " << i;
}

// dp, tp, collectives beside the computation, graphs
class CudaMlp : public testing::TestWithParam<std::tuple<int, int, bool, bool>> {};

TEST_P(CudaMlp, TrainsAsThePlainLoopsDo) {
  auto [dp, tp, asynchronous, graphs] = GetParam();
  MlpShape shape{.dp = dp, .tp = tp, .asynchronous = asynchronous};
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan(shape));
  {
    std::unique_ptr<Executor> executor = open(plan, {.graphs = graphs});
    ASSERT_TRUE(executor);
    int before = gpu.graphLaunches(); // that time products
    ASSERT_NO_FATAL_FAILURE(expectLosses(*executor, shape, 12));
    EXPECT_EQ(gpu.graphLaunches() - before, graphs ? 11 : 0); // all steps but the first
  }
  EXPECT_EQ(gpu.allocated(), 0u);
}
INSTANTIATE_TEST_SUITE_P(Meshes, CudaMlp,
                         testing::Values(std::tuple{1, 1, true, true}, std::tuple{1, 1, true, false},
                                         std::tuple{2, 1, true, true}, std::tuple{1, 2, true, true},
                                         std::tuple{2, 2, true, true}, std::tuple{2, 2, true, false},
                                         std::tuple{2, 2, false, true}, std::tuple{2, 4, true, true}));

// Command by command, as a graph, or each waited for: sums over ranks are made in one order.
TEST(Cuda, RunsGiveTheSameBitsHoweverTheyAreEnqueued) {
  MlpShape shape{.dp = 4};
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan(shape));
  std::vector<double> first = train(*open(plan), shape, 8).losses;
  EXPECT_EQ(train(*open(plan, {.graphs = false}), shape, 8).losses, first);
  EXPECT_EQ(train(*open(plan, {.debug = true}), shape, 8).losses, first);
}

// Steps with batches of their own, each begun while the one before goes on, or one after the other.
struct Batches {
  Batches(const MlpShape &shape, int steps) {
    for (int step = 0; step < steps; ++step) {
      MlpData &data = batches.emplace_back(mlpData(shape));
      for (float &x : data.x) x *= static_cast<float>(1 + step) / static_cast<float>(steps);
      pointers.push_back(
          {reinterpret_cast<const std::byte *>(data.x.data()), reinterpret_cast<const std::byte *>(data.t.data())});
    }
  }
  std::deque<MlpData> batches;
  std::deque<std::array<const std::byte *, 2>> pointers;
};
Trained train(Executor &executor, const MlpShape &shape, Batches &of, bool ahead) {
  loadWeights(executor, mlpData(shape));
  Trained trained;
  const int steps = static_cast<int>(of.pointers.size());
  for (int step = 0, begun = 0; step < steps && trained.status; ++step) {
    for (; begun <= step + ahead && begun < steps && trained.status; ++begun) {
      const auto number = static_cast<size_t>(begun);
      trained.status = executor.begin("step", of.pointers[number], begun);
      for (float &x : of.batches[number].x) x = -1; // the executor has them
    }
    auto outputs = executor.finish();
    if (trained.status) trained.status = outputs.status();
    if (outputs) trained.losses.push_back(outputs->at("loss"));
  }
  return trained;
}

TEST(Cuda, StepsBegunBesideTheOneBeforeGiveTheSameBits) {
  constexpr int steps = 9;
  for (int gpus : {1, 2})
    for (MlpShape shape : {MlpShape{}, MlpShape{.dp = 2, .tp = 2}}) {
      FakeGpu gpu;
      gpu.count(gpus);
      plan::Plan plan = gpu.planOf(mlpPlan(shape));
      std::vector<double> losses[2];
      for (bool graphs : {true, false})
        for (bool ahead : {false, true}) {
          Batches batches(shape, steps);
          Trained trained = train(*open(plan, {.graphs = graphs}), shape, batches, ahead);
          ASSERT_TRUE(trained.status.isOk()) << trained.status.message();
          losses[ahead] = trained.losses;
          if (ahead) EXPECT_EQ(losses[1], losses[0]) << "graphs " << graphs << ", GPUs " << gpus;
        }
      EXPECT_EQ(losses[0].size(), size_t(steps));
    }
}

TEST(Cuda, InputsAreCopiedWhileTheStepBeforeRuns) {
  MlpShape shape{.dp = 2};
  for (bool graphs : {true, false}) {
    FakeGpu gpu;
    plan::Plan plan = gpu.planOf(mlpPlan(shape));
    std::unique_ptr<Executor> executor = open(plan, {.graphs = graphs});
    loadWeights(*executor, mlpData(shape));
    Batches batches(shape, 5);
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(executor->run("step", batches.pointers[size_t(step)], step));
    gpu.hang("relu_gradient");
    ASSERT_TRUE(executor->begin("step", batches.pointers[3], 3).isOk());
    int before = gpu.uploads();
    // Without graphs it begins the commands when those of step 3 have ended.
    std::future<Status> begun =
        std::async(std::launch::async, [&] { return executor->begin("step", batches.pointers[4], 4); });
    if (graphs) begun.wait();
    for (int turn = 0; turn < 1000 && gpu.uploads() < before + 2; ++turn) ::usleep(10000);
    EXPECT_GE(gpu.uploads(), before + 2); // of every rank, while step 3 hangs
    gpu.hang("");
    ASSERT_TRUE(begun.get().isOk());
    for (int step : {3, 4}) {
      ASSERT_TRUE(executor->finish().isOk()) << step;
      EXPECT_EQ(executor->idleSeconds().has_value(), step == 3); // nothing is begun behind step 4
    }
    EXPECT_EQ(gpu.capturedUploads(), 0);
  }
}

TEST(Cuda, StagesCountAsMemoryOfTheDevice) {
  MlpShape shape{.dp = 2};
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan(shape));
  int64_t inputs = 0;
  for (const plan::InputBinding &input : plan.programs(0).fragments(0).inputs())
    inputs += (byteSize(input.buffer()) + 255) / 256 * 256;
  for (const plan::HostScalar &scalar : plan.programs(0).host_scalars())
    inputs += (byteSize(scalar.buffer()) + 255) / 256 * 256;
  EXPECT_EQ(stagedBytes(plan, plan.programs(0)), 2 * inputs);
  const plan::Program &program = plan.programs(0);
  int64_t needed = program.arena_bytes() + program.library_workspace_bytes() + 2 * inputs;
  plan.set_device_memory_bytes(needed);
  EXPECT_TRUE(verifyPlan(plan).isOk());
  EXPECT_GE(open(plan)->peakBytes(), program.arena_bytes() + 2 * inputs);
  plan.set_device_memory_bytes(needed - 1);
  EXPECT_THAT(verifyPlan(plan).message(), testing::HasSubstr("a device needs"));
}

TEST(Cuda, AFaultIsOfItsStepWhenTheNextOneHasBegun) {
  MlpShape shape{.dp = 2, .lr = 1e30};
  std::string messages[2];
  for (bool ahead : {false, true}) {
    FakeGpu gpu;
    plan::Plan plan = gpu.planOf(mlpPlan(shape));
    Batches batches(shape, 10);
    messages[ahead] = train(*open(plan), shape, batches, ahead).status.message();
  }
  EXPECT_THAT(messages[0], testing::HasSubstr("(check_finite): the loss is not finite"));
  EXPECT_EQ(messages[1], messages[0]);
}

// The next step is refused where it begins: the one before is finished, and each has its own number.
TEST(Cuda, AnErrorOfTheNextStepIsToldByThatStep) {
  MlpShape shape{.dp = 2};
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan(shape));
  Batches batches(shape, 3);
  std::vector<double> expected = train(*open(plan), shape, batches, false).losses;
  Batches again(shape, 3);
  std::unique_ptr<Executor> executor = open(plan, {.graphs = false});
  loadWeights(*executor, mlpData(shape));
  ASSERT_TRUE(executor->begin("step", again.pointers[0], 0).isOk());
  gpu.refuse("mse", 701);
  ASSERT_TRUE(executor->begin("step", again.pointers[1], 1).isOk());
  auto first = executor->finish();
  ASSERT_TRUE(first.isOk()) << first.status().message();
  EXPECT_EQ(first->at("loss"), expected[0]);
  ASSERT_TRUE(executor->begin("step", again.pointers[2], 2).isOk());
  EXPECT_THAT(executor->finish().status().message(),
              testing::StartsWith("rank 0, step 2, command 'loss' (launch): kernel 'mse' does not start"));
  EXPECT_FALSE(executor->finish().isOk());
}

// A step whose kernel stops the GPU is the one that is told, not the one in whose begin() it shows.
TEST(Cuda, AStoppedGpuIsToldByTheStepThatStoppedIt) {
  MlpShape shape;
  for (bool graphs : {true, false})
    for (bool debug : {false, true}) {
      FakeGpu gpu;
      plan::Plan plan = gpu.planOf(mlpPlan(shape));
      Batches batches(shape, 5);
      std::unique_ptr<Executor> executor = open(plan, {.debug = debug, .graphs = graphs});
      loadWeights(*executor, mlpData(shape));
      for (int step = 0; step < 3; ++step) ASSERT_TRUE(executor->run("step", batches.pointers[size_t(step)], step));
      gpu.fail("relu_gradient", 700);
      ASSERT_TRUE(executor->begin("step", batches.pointers[3], 3).isOk());
      ::usleep(50000); // it has stopped
      (void)executor->begin("step", batches.pointers[4], 4);
      EXPECT_THAT(executor->finish().status().message(), testing::StartsWith("rank 0, step 4, ")) << graphs << debug;
    }
}

// A stream takes so many commands, then the driver holds the host up: what comes behind a stuck step is not given to
// it.
TEST(Cuda, AStuckStepIsToldWhenTheNextOneHasBegun) {
  MlpShape shape{.dp = 2};
  for (bool graphs : {true, false}) {
    FakeGpu gpu;
    plan::Plan plan = gpu.planOf(mlpPlan(shape));
    Batches batches(shape, 2);
    std::unique_ptr<Executor> executor = open(plan, {.graphs = graphs, .limits = {.step = {0.5, "--step-timeout"}}});
    loadWeights(*executor, mlpData(shape));
    gpu.hang("cleave_reduce_f32_sum");
    ASSERT_TRUE(executor->begin("step", batches.pointers[0], 0).isOk());
    ::usleep(50000); // it is stuck
    gpu.depth(4);
    std::atomic<bool> isOver{false};
    std::thread rescue([&] { // else the test would not end
      for (int turn = 0; turn < 500 && !isOver; ++turn) ::usleep(10000);
      if (!isOver) gpu.depth(1u << 20);
    });
    const auto start = std::chrono::steady_clock::now();
    (void)executor->begin("step", batches.pointers[1], 1);
    gpu.depth(1u << 20);
    Status status = executor->finish().status();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4)) << "graphs " << graphs;
    isOver = true;
    rescue.join();
    gpu.hang("");
    EXPECT_THAT(status.message(), testing::StartsWith("rank 0, step 1, the step did not finish within 0.5 s"));
    EXPECT_THAT(status.message(), testing::HasSubstr("rank 1: compute: before check_finite 'loss' of final 0 (10 of 14 "
                                                     "commands done); communication: in all_reduce 'gradients'"));
  }
}

// In the middle of a step, where collectives are half met, too.
TEST(Cuda, StepsGoOnWithoutGraphsWhereTheirCaptureIsRefused) {
  MlpShape shape{.dp = 2};
  for (const char *kernel : {"relu_gradient", "cleave_reduce_f32_sum", "check_finite"}) {
    FakeGpu gpu;
    plan::Plan plan = gpu.planOf(mlpPlan(shape));
    std::vector<double> expected = train(*open(plan), shape, 5).losses;
    std::unique_ptr<Executor> executor = open(plan);
    int before = gpu.graphLaunches();
    gpu.refuseCaptured(kernel, 900);
    testing::internal::CaptureStderr();
    Trained trained = train(*executor, shape, 5);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::MatchesRegex("cleave: warning: .*: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED .*; steps go on "
                                      "without CUDA graphs, command by command\n")); // once
    EXPECT_TRUE(trained.status.isOk()) << kernel << ": " << trained.status.message();
    EXPECT_EQ(trained.losses, expected) << kernel;
    EXPECT_EQ(gpu.graphLaunches(), before);
  }
}

TEST(Cuda, MessagesThatACaptureSentAreNotThere) {
  PipelineShape shape{.ranks = 2, .schedule = "1f1b"};
  PipelineData data = pipelineData(shape);
  std::vector<double> losses[2];
  for (int refused : {0, 1}) {
    FakeGpu gpu;
    plan::Plan plan = gpu.planOf(pipelinePlan(shape));
    std::unique_ptr<Executor> executor = open(plan);
    if (refused) gpu.refuseCaptured("check_finite", 900);
    for (int step = 0; step < 4; ++step) {
      auto outputs = executor->run("step", data.pointers(shape), step);
      ASSERT_TRUE(outputs.isOk()) << outputs.status().message();
      losses[refused].push_back(outputs->at("loss"));
    }
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Cuda, MemoryIsMadeForOtherProcessesAndNetworkCardsWhereTheGpuHasThat) {
  MlpShape shape{.dp = 2};
  for (bool able : {true, false}) {
    FakeGpu gpu;
    gpu.exports(able);
    plan::Plan plan = gpu.planOf(mlpPlan(shape));
    std::unique_ptr<Executor> executor = open(plan);
    ASSERT_TRUE(executor);
    EXPECT_GT(gpu.allocated(), 0u);
    EXPECT_EQ(gpu.unexported() == 0, able);
  }
}

TEST(Cuda, TracesEveryCommandOfTheFirstSteps) {
  MlpShape shape{.dp = 2};
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan(shape));
  std::unique_ptr<Executor> executor = open(plan, {.trace = {.recordsPerLane = 1000}});
  int before = gpu.graphLaunches();
  ASSERT_TRUE(train(*executor, shape, 3).status.isOk());
  EXPECT_EQ(gpu.graphLaunches(), before); // a graph's commands cannot be timed
  std::string path = testing::TempDir() + "gpu-trace.json";
  ASSERT_TRUE(executor->writeTrace(path).isOk());
  std::ifstream file(path);
  nlohmann::json written = nlohmann::json::parse(file);
  std::map<std::string, int> counts;
  for (const auto &event : written.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    EXPECT_GE(event.at("dur").get<double>(), 0);
    ++counts[event.at("name").get<std::string>()];
  }
  int commands = 0;
  for (const plan::Command &command : plan.programs(0).fragments(0).commands()) commands += command.name() == "fc1";
  EXPECT_EQ(counts["fc1"], 3 * 2 * commands); // steps, ranks
}

TEST(Cuda, TracesTheStepsThatWereAskedFor) {
  MlpShape shape{.dp = 2};
  for (bool graphs : {true, false}) {
    FakeGpu gpu;
    plan::Plan plan = gpu.planOf(mlpPlan(shape));
    std::unique_ptr<Executor> executor =
        open(plan, {.trace = {.recordsPerLane = 1000, .firstStep = 3, .lastStep = 4}, .graphs = graphs});
    loadWeights(*executor, mlpData(shape));
    Batches batches(shape, 8);
    Trained trained = train(*executor, shape, batches, true);
    ASSERT_TRUE(trained.status.isOk()) << trained.status.message();
    for (const TraceLane &lane : executor->recorded()->all()) {
      std::set<int64_t> steps;
      for (const TraceLane::Record &record : lane.records) steps.insert(record.step + 1);
      EXPECT_EQ(steps, (std::set<int64_t>{3, 4}));
    }
  }
}

// The fake refuses work of one GPU on a stream of another, and memory that a GPU was not let into.
TEST(Cuda, RanksOnSeveralGpusOfOneProcess) {
  for (int gpus : {2, 3})
    for (bool graphs : {true, false}) {
      MlpShape shape{.dp = 2, .tp = 2};
      FakeGpu gpu;
      gpu.count(gpus);
      plan::Plan plan = gpu.planOf(mlpPlan(shape));
      std::unique_ptr<Executor> executor = open(plan, {.graphs = graphs});
      ASSERT_TRUE(executor);
      ASSERT_NO_FATAL_FAILURE(expectLosses(*executor, shape, 6));
    }
}

TEST(Cuda, PipelinesExchangeMessages) {
  for (const char *schedule : {"gpipe", "1f1b", "interleaved:2"})
    for (int dp : {1, 2}) {
      PipelineShape shape{.ranks = 2, .dp = dp, .schedule = schedule};
      FakeGpu gpu;
      gpu.count(dp);
      plan::Plan cpu = pipelinePlan(shape), plan = gpu.planOf(cpu);
      PipelineData data = pipelineData(shape);
      std::vector<double> losses[2];
      for (int which : {0, 1}) {
        std::unique_ptr<Executor> executor = open(which ? plan : cpu);
        ASSERT_TRUE(executor) << schedule;
        WeightReader weights(which ? plan : cpu);
        for (int64_t device : executor->devices())
          for (const plan::Parameter &parameter : executor->plan().parameters())
            if (executor->holds(device, parameter)) {
              Status status = weights.initialize(parameter, executor->shardShape(device, parameter),
                                                 executor->shard(device, parameter, ShardAccess::Replace));
              ASSERT_TRUE(status.isOk()) << status.message();
            }
        for (int step = 0; step < 5; ++step) {
          auto outputs = executor->run("step", data.pointers(shape), step);
          ASSERT_TRUE(outputs.isOk()) << schedule << ": " << outputs.status().message();
          losses[which].push_back(outputs->at("loss"));
        }
      }
      for (size_t i = 0; i < losses[0].size(); ++i)
        EXPECT_NEAR(losses[1][i], losses[0][i], 1e-5 * losses[0][i]) << schedule << " step " << i;
    }
}

TEST(Cuda, NonFiniteLossNamesItsCommand) {
  MlpShape shape{.dp = 2, .lr = 1e30};
  for (bool debug : {false, true}) {
    FakeGpu gpu;
    plan::Plan plan = gpu.planOf(mlpPlan(shape));
    Trained trained = train(*open(plan, {.debug = debug}), shape, 10);
    EXPECT_THAT(
        trained.status.message(),
        testing::MatchesRegex("rank [01], step [0-9]+, command 'loss' \\(check_finite\\): the loss is not finite.*"));
  }
}

TEST(Cuda, DebugFindsTheKernelThatFailed) {
  MlpShape shape;
  for (bool debug : {false, true}) {
    FakeGpu gpu;
    plan::Plan plan = gpu.planOf(mlpPlan(shape));
    std::unique_ptr<Executor> executor = open(plan, {.debug = debug});
    gpu.fail("relu_gradient", 700);
    Status status = train(*executor, shape, 3).status;
    EXPECT_THAT(status.message(), testing::HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
    if (debug)
      EXPECT_THAT(status.message(),
                  testing::MatchesRegex("rank 0, step 1, command 'relu' \\(launch\\): the GPU stopped, "
                                        "kernel 'relu_gradient': .*"));
  }
}

TEST(Cuda, ALaunchThatIsRefusedNamesKernelAndCommand) {
  MlpShape shape;
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan(shape));
  std::unique_ptr<Executor> executor = open(plan);
  gpu.refuse("mse", 701);
  EXPECT_THAT(train(*executor, shape, 3).status.message(),
              testing::MatchesRegex("rank 0, step 1, command 'loss' \\(launch\\): kernel 'mse' does not start: "
                                    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES.*"));
}

TEST(Cuda, MemoryThatDoesNotSufficeIsTold) {
  MlpShape shape{.dp = 2};
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan(shape));
  gpu.memory(16 << 10);
  Result<std::unique_ptr<Executor>> executor = tryOpen(plan);
  ASSERT_FALSE(executor.isOk());
  EXPECT_THAT(executor.status().message(),
              testing::MatchesRegex("rank [01]: GPU 0 \\(Fake GPU\\) has no room for .* MiB are free .*"));
}

TEST(Cuda, AStuckStepEndsWithTheLastCommandsOfEveryRank) {
  MlpShape shape{.dp = 2};
  FakeGpu gpu;
  plan::Plan plan = gpu.planOf(mlpPlan(shape));
  std::unique_ptr<Executor> executor = open(plan, {.limits = {.step = {0.5, "--step-timeout"}}});
  gpu.hang("cleave_reduce_f32_sum");
  Status status = train(*executor, shape, 3).status;
  gpu.hang("");
  for (const char *rank : {"rank 0", "rank 1"})
    EXPECT_THAT(status.message(),
                testing::HasSubstr(std::string(rank) +
                                   ": compute: before check_finite 'loss' of final 0 (10 of 14 commands done); "
                                   "communication: in all_reduce 'gradients' of final 0 (0 of 1 commands done)"));
}

TEST(CudaDeathTest, AMissingLibraryIsNamed) {
  testing::FLAGS_gtest_death_test_style = "threadsafe"; // a process of its own
  EXPECT_EXIT(
      {
        FakeGpu gpu;
        plan::Plan plan = gpu.planOf(mlpPlan({}));
        ::setenv("CLEAVE_CUDA_LIBRARIES", "/nonexistent", 1);
        std::fputs(tryOpen(plan).status().message().c_str(), stderr);
        std::exit(7);
      },
      testing::ExitedWithCode(7), "the plan is for GPUs of compute capability sm_90 .*libcuda.so.1 cannot be opened");
}

TEST(Cuda, StridedCopiesAsRectangles) {
  for (auto [sizes, source, target] :
       {std::tuple{std::vector<int64_t>{2, 3, 4}, std::vector<int64_t>{24, 4, 1}, std::vector<int64_t>{12, 4, 1}},
        std::tuple{std::vector<int64_t>{2, 3, 4, 5}, std::vector<int64_t>{240, 40, 5, 1},
                   std::vector<int64_t>{60, 20, 5, 1}},
        std::tuple{std::vector<int64_t>{4, 3, 2}, std::vector<int64_t>{1, 8, 24}, std::vector<int64_t>{6, 2, 1}}}) {
    std::vector<float> from(600), expected(600), got(600);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i + 1);
    StridedCopy(sizes, source, target, 4)
        .run(reinterpret_cast<std::byte *>(from.data()), reinterpret_cast<std::byte *>(expected.data()));
    for (const cuda::Rectangle &r : cuda::rectanglesOf(sizes, source, target, 4)) {
      EXPECT_GE(r.sourcePitch, r.width);
      EXPECT_GE(r.targetPitch, r.width);
      for (int64_t row = 0; row < r.height; ++row)
        std::memcpy(reinterpret_cast<std::byte *>(got.data()) + r.target + row * r.targetPitch,
                    reinterpret_cast<std::byte *>(from.data()) + r.source + row * r.sourcePitch,
                    static_cast<size_t>(r.width));
    }
    EXPECT_EQ(got, expected);
  }
}

TEST(Cuda, ReductionsAssemble) {
  if (!std::filesystem::exists(CLEAVE_PTXAS)) GTEST_SKIP() << "no ptxas";
  std::string text = testing::TempDir() + "reductions.ptx";
  std::ofstream(text) << cuda::reductionPtx();
  for (const char *target : {"sm_80", "sm_90"})
    EXPECT_EQ(std::system((std::string(CLEAVE_PTXAS) + " -arch=" + target + " -o /dev/null " + text).c_str()), 0);
}

} // namespace
} // namespace cleave::runtime::test
