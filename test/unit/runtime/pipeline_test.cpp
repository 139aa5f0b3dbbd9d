#include "runtime/engine/comm/local.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/verify/verify.h"
#include "runtime/train/state/snapshot.h"
#include "runtime/train/state/weights.h"
#include "runtime/train/trainer.h"
#include "test/unit/processor_seconds.h"
#include "test/unit/runtime/pipeline_plan.h"
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace cleave::runtime::test {
namespace {

using testing::HasSubstr;

std::unique_ptr<Executor> open(const plan::Plan &plan, ExecutorOptions options = {.threads = 1}) {
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  Result<std::unique_ptr<Executor>> executor = Executor::create(plan, std::make_unique<LocalFabric>(*mesh), options);
  EXPECT_TRUE(executor.isOk()) << executor.status().message();
  if (!executor) return nullptr;
  WeightReader weights(plan);
  for (int64_t device : (*executor)->devices())
    for (const plan::Parameter &parameter : plan.parameters())
      if ((*executor)->holds(device, parameter)) {
        Status status = weights.initialize(parameter, (*executor)->shardShape(device, parameter),
                                           (*executor)->shard(device, parameter));
        EXPECT_TRUE(status.isOk()) << status.message();
      }
  return std::move(*executor);
}

std::vector<double> train(Executor &executor, const PipelineShape &shape, int steps) {
  PipelineData data = pipelineData(shape);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    auto outputs = executor.run("step", data.pointers(shape), step);
    EXPECT_TRUE(outputs.isOk()) << outputs.status().message();
    if (!outputs) break;
    losses.push_back(outputs->at("loss"));
  }
  return losses;
}

std::string nameOf(const testing::TestParamInfo<PipelineShape> &info) {
  std::string name = info.param.schedule + "_" + std::to_string(info.param.ranks) + "x" +
                     std::to_string(info.param.dp) + "_m" + std::to_string(info.param.microbatches);
  for (char &c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

class Pipeline : public testing::TestWithParam<PipelineShape> {};

TEST_P(Pipeline, TrainsAsThePlainLoopsDo) {
  const PipelineShape &shape = GetParam();
  plan::Plan plan = pipelinePlan(shape);
  Status valid = verifyPlan(plan);
  ASSERT_TRUE(valid.isOk()) << valid.message();
  std::vector<double> losses = train(*open(plan), shape, 6);
  std::vector<double> expected = pipelineLosses(shape, plan, pipelineData(shape), 6);
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 2e-6 * expected[i]) << "step " << i;
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(train(*open(plan), shape, 6), losses) << "another run has other bits";
}

std::vector<PipelineShape> shapes() {
  std::vector<PipelineShape> all;
  for (const char *schedule : {"gpipe", "1f1b", "interleaved:2", "looped-bfs:2", "zb-h1", "zb-h2", "zb-v", "dualpipev"})
    for (int64_t ranks : {2, 4})
      for (int64_t microbatches : {4, 8}) {
        if (schedule == std::string("dualpipev") && microbatches < 2 * ranks) continue; // its own bound
        all.push_back({.ranks = ranks, .schedule = schedule, .microbatches = microbatches});
      }
  all.push_back({.ranks = 2, .dp = 2, .schedule = "1f1b"});
  all.push_back({.ranks = 2, .dp = 4, .schedule = "interleaved:2"});
  all.push_back({.ranks = 2, .schedule = "1f1b", .tied = true});
  for (const char *schedule : {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-h2"})
    all.push_back({.ranks = 4, .dp = 2, .schedule = schedule, .microbatches = 8, .offload = true});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Schedules, Pipeline, testing::ValuesIn(shapes()), [](const auto &info) {
  return nameOf(info) + (info.param.tied ? "_tied" : info.param.offload ? "_offload" : "");
});

// The trace's order of actions is the table's, and each rank's actions do not overlap.
TEST(PipelineRun, TraceHasTheOrderOfTheSchedule) {
  PipelineShape shape{.ranks = 2, .schedule = "interleaved:2", .microbatches = 4};
  plan::Plan plan = pipelinePlan(shape);
  std::unique_ptr<Executor> executor = open(plan, {.threads = 1, .trace = {.recordsPerLane = 10000}});
  train(*executor, shape, 2);
  std::string path = testing::TempDir() + "pipeline_trace.json";
  Status written = executor->writeTrace(path);
  ASSERT_TRUE(written.isOk()) << written.message();
  std::ifstream file(path);
  nlohmann::json trace = nlohmann::json::parse(file);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> seen, expected;
    double end = 0;
    for (const auto &event : trace["traceEvents"]) {
      if (event["ph"] != "X" || event["cat"] != "action" || event["pid"] != rank) continue;
      seen.push_back(event["name"]);
      EXPECT_GE(event["ts"].get<double>(), end - 1e-3);
      end = event["ts"].get<double>() + event["dur"].get<double>();
    }
    for (int step = 0; step < 2; ++step)
      for (const plan::Action &action : plan.programs(rank).routines(0).actions())
        expected.push_back(actionName(plan.programs(rank).fragments(action.fragment()), action.microbatch()));
    EXPECT_EQ(seen, expected);
    EXPECT_THAT(expected, testing::Contains(rank ? "F 3 stage 1" : "B 0 stage 2"));
  }
}

// 2 stages, M microbatches: M activations and M gradients of [rows, width] floats; the loss over 2 x 2 devices.
TEST(PipelineRun, CountsWhatItSends) {
  PipelineShape shape{.ranks = 2, .dp = 2, .microbatches = 4};
  plan::Plan plan = pipelinePlan(shape);
  std::unique_ptr<Executor> executor = open(plan);
  train(*executor, shape, 3);
  int64_t sent = 0, summed = 0, losses = 0;
  for (int64_t device : executor->devices())
    for (const Traffic &traffic : executor->traffic(device)) {
      if (traffic.op == "send") {
        sent += traffic.bytes;
        EXPECT_EQ(traffic.count, 3 * 4);
      }
      if (traffic.op == "all_reduce" && traffic.axes == std::vector<std::string>{"dp"}) summed += traffic.bytes;
      if (traffic.op == "all_reduce" && traffic.axes.size() == 2) losses += traffic.bytes;
    }
  int64_t message = shape.rows / shape.dp * shape.width * 4, weights = shape.width * shape.width * 4;
  EXPECT_EQ(sent, 3 * 4 * message * 2 * shape.dp);         // steps, microbatches, both ways
  EXPECT_EQ(summed, 3 * 2 * 2 * (shape.dp - 1) * weights); // steps, stages, 2 (n - 1) bytes of a group
  EXPECT_EQ(losses, 3 * 2 * (4 - 1) * 4);
}

TEST(PipelineRun, ANonFiniteLossEndsTheRunAndSaysWhere) {
  PipelineShape shape{.lr = 1e30f};
  plan::Plan plan = pipelinePlan(shape);
  std::unique_ptr<Executor> executor = open(plan);
  PipelineData data = pipelineData(shape);
  Status failure;
  for (int step = 0; step < 5 && failure; ++step) failure = executor->run("step", data.pointers(shape), step).status();
  EXPECT_EQ(failure.exitStatus(), 4);
  EXPECT_THAT(failure.message(), testing::MatchesRegex("rank [01], step [0-9]+, command 'loss' \\(check_finite\\).*"));
}

class Training : public testing::Test {
protected:
  void SetUp() override {
    folder = std::filesystem::path(testing::TempDir()) / ("pipeline_" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  // Losses of steps up to `steps`, a snapshot at their end.
  std::vector<double> run(const PipelineShape &shape, int steps, bool resume) {
    plan::Plan plan = pipelinePlan(shape);
    PipelineData data = pipelineData(shape);
    auto trainer =
        Trainer::create(plan, {.steps = steps, .snapshots = folder.string(), .resume = resume, .threads = 1});
    EXPECT_TRUE(trainer.isOk()) << trainer.status().message();
    if (!trainer) return {};
    for (auto [name, array] : {std::pair{"x", &data.x}, std::pair{"t", &data.t}}) {
      Status bound = (*trainer)->bind(name, array->data(), static_cast<int64_t>(array->size() * 4));
      EXPECT_TRUE(bound.isOk()) << bound.message();
    }
    std::vector<double> losses;
    while ((*trainer)->stepsDone() < steps) {
      auto step = (*trainer)->step();
      EXPECT_TRUE(step.isOk()) << step.status().message();
      if (!step) break;
      losses.push_back(step->loss);
    }
    Status saved = (*trainer)->snapshot();
    EXPECT_TRUE(saved.isOk()) << saved.message();
    return losses;
  }
  std::filesystem::path folder;
};

TEST_F(Training, ResumesBitForBit) {
  PipelineShape shape{.ranks = 2, .dp = 2, .schedule = "interleaved:2"};
  std::vector<double> whole = run(shape, 6, false);
  std::filesystem::remove_all(folder);
  std::vector<double> first = run(shape, 3, false), rest = run(shape, 6, true);
  first.insert(first.end(), rest.begin(), rest.end());
  EXPECT_EQ(first, whole);
}

// Weights held by two stages are in the snapshot once, and both stages get them back.
TEST_F(Training, TiedWeightsAreSavedOnce) {
  PipelineShape shape{.ranks = 2, .tied = true};
  std::vector<double> whole = run(shape, 5, false);
  std::filesystem::remove_all(folder);
  std::vector<double> first = run(shape, 2, false);
  auto snapshot = Snapshot::open(folder.string());
  ASSERT_TRUE(snapshot.isOk()) << snapshot.status().message();
  EXPECT_EQ((*snapshot)->manifest().tensors.size(), 1u);
  std::vector<float> weights(static_cast<size_t>(shape.width * shape.width));
  std::vector<int64_t> sizes{shape.width, shape.width};
  Status read = (*snapshot)->read("w.0", plan::F32, sizes, {{0, 0}, sizes}, std::as_writable_bytes(std::span(weights)));
  EXPECT_TRUE(read.isOk()) << read.message();
  std::vector<double> rest = run(shape, 5, true);
  first.insert(first.end(), rest.begin(), rest.end());
  EXPECT_EQ(first, whole);
}

// The verifier's refusal. `edit` spoils a 1f1b plan of two ranks and four microbatches.
std::string refused(const std::function<void(plan::Plan &)> &edit, PipelineShape shape = {}) {
  plan::Plan plan = pipelinePlan(shape);
  edit(plan);
  return verifyPlan(plan).message();
}
plan::Fragment &fragment(plan::Plan &plan, int program, const std::string &name) {
  for (plan::Fragment &fragment : *plan.mutable_programs(program)->mutable_fragments())
    if (fragment.name() == name) return fragment;
  throw std::runtime_error("no fragment " + name);
}
plan::Transfer &transfer(plan::Plan &plan, int program, const std::string &name, bool receives) {
  for (plan::Command &command : *fragment(plan, program, name).mutable_commands())
    if (command.has_transfer() && (command.transfer().direction() == plan::Transfer::RECEIVE) == receives)
      return *command.mutable_transfer();
  throw std::runtime_error("no transfer in " + name);
}

TEST(VerifyPipeline, ASwappedSendNamesBothCommands) {
  // Interleaved: stage 0 and stage 2 both send to rank 1. Their tags are exchanged.
  std::string message = refused(
      [](plan::Plan &plan) {
        auto &a = transfer(plan, 0, "forward.0", false), &b = transfer(plan, 0, "forward.2", false);
        int32_t tag = a.tag();
        a.set_tag(b.tag());
        b.set_tag(tag);
      },
      {.schedule = "interleaved:2"});
  EXPECT_THAT(message,
              HasSubstr("send 0 of device 0 to device 1, in F 0 stage 0: command 2 'send y0' (tag 4, "
                        "microbatch 0, f32, 512 bytes), meets that device's receive 0 from it, in F 0 stage 1: "
                        "command 0 'receive y0' (tag 0, microbatch 0, f32, 512 bytes)"));
  // Two forward actions of the sender change places.
  message = refused(
      [](plan::Plan &plan) { plan.mutable_programs(0)->mutable_routines(0)->mutable_actions()->SwapElements(0, 1); });
  EXPECT_THAT(message, HasSubstr("send 0 of device 0 to device 1, in F 1 stage 0"));
  EXPECT_THAT(message, HasSubstr("receive 0 from it, in F 0 stage 1"));
}

TEST(VerifyPipeline, SendsAndReceivesThatDoNotPair) {
  EXPECT_THAT(refused([](plan::Plan &plan) { transfer(plan, 1, "forward.1", true).mutable_peer()->set_base(2); }),
              HasSubstr("device 1 has the peer 2 of 2 devices"));
  EXPECT_THAT(refused([](plan::Plan &plan) { transfer(plan, 1, "forward.1", true).mutable_peer()->set_base(1); }),
              HasSubstr("send 0 of device 0 to device 1, in F 0 stage 0: command 2 'send y0' (tag 0, microbatch 0, "
                        "f32, 512 bytes), meets no receive"));
  EXPECT_THAT(refused([](plan::Plan &plan) { transfer(plan, 1, "forward.1", true).set_channel(1 << 20); }),
              HasSubstr("channel 1048576 (of 1024)"));
  EXPECT_THAT(refused([](plan::Plan &plan) {
                auto &buffer = *transfer(plan, 1, "backward.1", false).mutable_buffer();
                buffer.set_shape(1, 8);
              }),
              HasSubstr("256 bytes), meets that device's receive 0 from it, in B 0 stage 0: command 0 'receive dy0'"));
  std::string message = refused([](plan::Plan &plan) {
    auto &commands = *fragment(plan, 1, "backward.1").mutable_commands();
    for (int i = 0; i < commands.size(); ++i)
      if (commands[i].has_transfer()) commands.DeleteSubrange(i--, 1);
  });
  EXPECT_THAT(message, HasSubstr("receive 0 of device 0 from device 1, in B 0 stage 0"));
  EXPECT_THAT(message, HasSubstr("meets no send"));
}

TEST(VerifyPipeline, ADeadlockSaysWhoWaitsForWhat) {
  std::string message = refused([](plan::Plan &plan) { // rank 1 sums the loss first
    auto &actions = *plan.mutable_programs(1)->mutable_routines(0)->mutable_actions();
    for (int i = actions.size() - 1; i > 0; --i) actions.SwapElements(i, i - 1);
  });
  EXPECT_THAT(message, HasSubstr("a deadlock: "));
  EXPECT_THAT(message, HasSubstr("waits for the other members of all_reduce SUM over {pp,dp} f32[1]"));
  EXPECT_THAT(message, HasSubstr("command 0 'receive dy0', waits for a message of device 1"));
}

TEST(VerifyPipeline, CollectivesThatMeetMustBeTheSame) {
  EXPECT_THAT(refused([](plan::Plan &plan) {
                for (plan::Command &command : *fragment(plan, 1, "update").mutable_commands())
                  if (command.has_collective() && command.collective().axes_size() == 2)
                    command.mutable_collective()->set_reduce(plan::Collective::MAX);
              }),
              testing::AllOf(HasSubstr("two collectives meet that differ: "),
                             HasSubstr("device 0, update 3: command 1 'loss': all_reduce SUM"),
                             HasSubstr("device 1, update 3: command 1 'loss': all_reduce MAX")));
}

TEST(VerifyPipeline, Slots) {
  auto &&region = [](plan::Plan &plan) -> plan::SlotRegion & {
    return *plan.mutable_programs(0)->mutable_slot_regions(0);
  };
  EXPECT_THAT(refused([&](plan::Plan &plan) { region(plan).set_count(1); }), HasSubstr("uses slot 1 of 1"));
  EXPECT_THAT(refused([&](plan::Plan &plan) { region(plan).set_offset(0); }), HasSubstr("overlaps slot region 0"));
  EXPECT_THAT(refused([&](plan::Plan &plan) { region(plan).set_count(1000); }), HasSubstr("are not inside the arena"));
  EXPECT_THAT(refused([](plan::Plan &plan) { // microbatch 1 into the slot of microbatch 0, which waits for its backward
                plan.mutable_programs(0)->mutable_routines(0)->mutable_actions(1)->set_slot(0);
              }),
              HasSubstr("which microbatch 1 has overwritten"));
  EXPECT_THAT(refused([](plan::Plan &plan) { // backward before forward
                plan.mutable_programs(0)->mutable_routines(0)->mutable_actions()->SwapElements(0, 2);
              }),
              HasSubstr("of the slot, which no earlier action wrote"));
}

// Rank 0 keeps two microbatches, each in a slot of its own of the host's memory.
TEST(VerifyPipeline, SlotsOfTheHost) {
  plan::Plan sound = pipelinePlan({.offload = true});
  ASSERT_TRUE(verifyPlan(sound).isOk()) << verifyPlan(sound).message();
  auto damaged = [&](const std::function<void(plan::Plan &, plan::Program &)> &damage) {
    plan::Plan plan = sound;
    damage(plan, *plan.mutable_programs(0));
    return verifyPlan(plan).message();
  };
  auto command = [](plan::Plan &plan, const char *fragmentName, const std::string &name) -> plan::Command & {
    for (plan::Command &command : *fragment(plan, 0, fragmentName).mutable_commands())
      if (command.name() == name) return command;
    throw std::runtime_error("no command " + name);
  };
  ASSERT_EQ(sound.programs(0).slot_regions(0).count(), 2);
  EXPECT_THAT(damaged([](plan::Plan &, plan::Program &p) { p.set_host_bytes(p.host_bytes() - 1); }),
              HasSubstr("bytes of the host's memory"));
  EXPECT_THAT(damaged([](plan::Plan &, plan::Program &p) { p.mutable_slot_regions(0)->set_host_bytes(64); }),
              HasSubstr("of the host's memory (512 bytes) is not inside the slot of 64 bytes"));
  EXPECT_THAT(damaged([](plan::Plan &, plan::Program &p) {
                p.set_host_bytes(p.host_bytes() + 4);
                p.mutable_slot_regions(0)->set_host_offset(4);
              }),
              HasSubstr("not aligned to 8 bytes"));
  EXPECT_THAT(damaged([&](plan::Plan &plan, plan::Program &) { // comes back from another microbatch's place
                plan.mutable_programs(0)->mutable_routines(0)->mutable_actions(1)->set_slot(0);
              }),
              HasSubstr("which microbatch 1 has overwritten"));
  EXPECT_THAT(damaged([&](plan::Plan &plan, plan::Program &) { // nobody has brought it there
                fragment(plan, 0, "forward.0").mutable_commands()->RemoveLast();
              }),
              HasSubstr("of the slot in the host's memory, which no earlier action wrote"));
  EXPECT_THAT(damaged([&](plan::Plan &plan, plan::Program &) { // read before the copy has come back
                command(plan, "backward.0", "relu0").clear_wait_events();
                command(plan, "backward.0", "relu0").add_wait_events(1);
              }),
              testing::AllOf(HasSubstr("'fetch y0'"), HasSubstr("may run at the same time")));
  EXPECT_THAT(damaged([&](plan::Plan &plan, plan::Program &) { // leaves before it is made
                command(plan, "forward.0", "evict y0").clear_wait_events();
              }),
              testing::AllOf(HasSubstr("'evict y0'"), HasSubstr("may run at the same time")));
  EXPECT_THAT(damaged([&](plan::Plan &plan, plan::Program &p) { // something that stays there lies among them
                plan::Buffer &there = *command(plan, "forward.0", "evict y0").mutable_copy()->mutable_target();
                there.set_in_slot(false);
                there.set_offset(p.slot_regions(0).host_bytes());
              }),
              HasSubstr("overlaps slot region 0 of the host's memory"));
}

TEST(VerifyPipeline, MemoryOfADevice) {
  plan::Plan plan = pipelinePlan({});
  plan.set_device_memory_bytes(plan.programs(0).arena_bytes() - 1);
  Status status = verifyPlan(plan);
  EXPECT_EQ(status.exitStatus(), 3);
  EXPECT_THAT(status.message(), HasSubstr("memory_gib"));
}

TEST(VerifyPipeline, TakesNoLongerForManyDevices) {
  auto secondsFor = [](int64_t dp) {
    plan::Plan plan = pipelinePlan(
        {.ranks = 8, .dp = dp, .schedule = "interleaved:2", .microbatches = 64, .rows = 8192, .width = 16});
    return cleave::test::processorSeconds([&] {
      Status status = verifyPlan(plan);
      EXPECT_TRUE(status.isOk()) << status.message();
    });
  };
  EXPECT_LT(secondsFor(8192), 10 * secondsFor(2));
}

} // namespace
} // namespace cleave::runtime::test
