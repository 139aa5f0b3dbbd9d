// Steps of hand-made plans, command by command: prices by the formulas, orders by hand, pipelines by their closed form.
#include "compiler/simulate/simulate.h"
#include "runtime/plan/routine.h"
#include "test/unit/runtime/mlp_plan.h"
#include "test/unit/runtime/pipeline_plan.h"
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

namespace cleave::simulate {
namespace {

using planner::Cluster;

Cluster clusterOf(const std::string &name) {
  auto cluster = planner::parseCluster(name);
  EXPECT_TRUE(cluster.isOk()) << cluster.status().message();
  return *cluster;
}

dist::Mesh meshOf(std::vector<dist::MeshAxis> axes) { return {std::move(axes)}; }

// 2 m n k FLOP, operands and result once; the seconds are those of the cost model's product.
TEST(CommandPrices, AreTheCostModels) {
  const Cluster cluster = clusterOf("a100-80g:2");
  plan::Plan plan;
  plan::Command command;
  plan::Contract &c = *command.mutable_contract();
  c.set_m(64), c.set_n(128), c.set_k(256);
  auto shape = [](plan::Buffer &buffer, std::initializer_list<int64_t> sizes) {
    buffer.set_dtype(plan::F32);
    for (int64_t size : sizes) buffer.add_shape(size);
  };
  shape(*c.mutable_lhs(), {64, 256}), shape(*c.mutable_rhs(), {256, 128}), shape(*c.mutable_out(), {64, 128});
  const dist::Mesh mesh = meshOf({{"dp", 2}});
  const CommandPrices prices(plan, cluster, mesh);
  const CommandPrice price = prices.of(command, 0);
  EXPECT_EQ(price.work.flops, 2.0 * 64 * 128 * 256);
  EXPECT_EQ(price.work.bytes, 4.0 * (64 * 256 + 256 * 128 + 64 * 128));
  planner::LocalWork work{.flops = price.work.flops, .bytes = price.work.bytes, .product = {64, 128, 256, 1}};
  EXPECT_DOUBLE_EQ(price.seconds, planner::operationSeconds(cluster, "fp32", work));

  plan::Command sum;
  plan::Collective &all = *sum.mutable_collective();
  all.add_axes("dp");
  shape(*all.add_inputs(), {1 << 20}), shape(*all.add_outputs(), {1 << 20});
  EXPECT_DOUBLE_EQ(prices.of(sum, 0).seconds,
                   planner::collectiveSeconds(cluster, dist::Collective::AllReduce, {2, 2}, 4 << 20));
  all.set_op(plan::Collective::ALL_GATHER); // the whole tensor of the group: what comes out
  all.mutable_outputs(0)->set_shape(0, 2 << 20);
  EXPECT_DOUBLE_EQ(prices.of(sum, 0).seconds,
                   planner::collectiveSeconds(cluster, dist::Collective::AllGather, {2, 2}, 8 << 20));
}

// A shift along a ring takes the time of its slowest hop, as the report says too; what a device sends to itself none.
TEST(CommandPrices, OfRingsAndMessages) {
  const Cluster cluster = clusterOf("a100-80g:8x2");
  const dist::Mesh mesh = meshOf({{"cp", 8}, {"tp", 2}});
  plan::Plan plan;
  const CommandPrices prices(plan, cluster, mesh);
  auto shift = [&](std::vector<std::string> axes) {
    plan::Command command;
    plan::Collective &c = *command.mutable_collective();
    c.set_op(plan::Collective::SHIFT);
    for (const std::string &axis : axes) c.add_axes(axis);
    c.add_inputs()->set_dtype(plan::F32);
    c.mutable_inputs(0)->add_shape(1 << 20);
    return prices.of(command, 0).seconds;
  };
  EXPECT_DOUBLE_EQ(shift({"tp"}), planner::sendSeconds(cluster, planner::inNode, 4 << 20));
  EXPECT_DOUBLE_EQ(shift({"cp"}), planner::sendSeconds(cluster, planner::betweenNodes, 4 << 20));
  EXPECT_DOUBLE_EQ(shift({"cp", "tp"}), planner::sendSeconds(cluster, planner::betweenNodes, 4 << 20));
  EXPECT_EQ(shift({}), 0);
  plan::Command send;
  send.mutable_transfer()->mutable_peer()->set_base(3);
  *send.mutable_transfer()->mutable_buffer() = plan::Buffer();
  EXPECT_EQ(prices.of(send, 3).seconds, 0);
  EXPECT_GT(prices.of(send, 2).seconds, 0);
}

// Rows of a grouped product that are its own experts', each multiplied once.
TEST(CommandPrices, OfGroupedProducts) {
  plan::Plan plan;
  plan::Command command;
  plan::GroupedContract &c = *command.mutable_grouped_contract();
  c.add_rows(32), c.add_rows(2), c.set_k(16), c.set_n(8), c.set_groups(4), c.set_global_groups(8);
  const CommandWork work = PlanWork(plan).of(command);
  EXPECT_EQ(work.flops, 2.0 * 32 * 16 * 8); // half of 64 rows
  EXPECT_EQ(work.product.batch, 4);
  EXPECT_EQ(work.product.m, 8);
}

// The longest way through the commands, each of which waits for the one before it on its lane and for its events.
double longestWay(const plan::Plan &plan, const Cluster &cluster, const dist::Mesh &mesh) {
  const CommandPrices prices(plan, cluster, mesh);
  const plan::Program &program = plan.programs(0);
  std::map<int, double> lanes, events;
  double last = 0;
  EXPECT_EQ(runtime::findRoutine(program, "step")->actions_size(), 1);
  const plan::Action &action = runtime::findRoutine(program, "step")->actions(0);
  for (const plan::Command &command : program.fragments(action.fragment()).commands()) {
    double &lane = lanes[runtime::laneOf(command)];
    for (int event : command.wait_events()) lane = std::max(lane, events.at(event));
    lane += prices.of(command, 0).seconds;
    if (command.record_event()) events[command.record_event()] = lane;
    last = std::max(last, lane);
  }
  return last;
}

TEST(SimulatedStep, WaitsForEvents) {
  const dist::Mesh mesh = meshOf({{"dp", 2}, {"tp", 1}});
  const Cluster gpus = clusterOf("a100-80g:2");
  const plan::Plan beside = runtime::test::mlpPlan({.dp = 2}),
                   behind = runtime::test::mlpPlan({.dp = 2, .asynchronous = false});
  auto one = simulateStep(beside, gpus, true), other = simulateStep(behind, gpus);
  ASSERT_TRUE(one.isOk()) << one.status().message();
  ASSERT_TRUE(other.isOk()) << other.status().message();
  EXPECT_DOUBLE_EQ(one->seconds, longestWay(beside, gpus, mesh));
  EXPECT_DOUBLE_EQ(other->seconds, longestWay(behind, gpus, mesh));
  EXPECT_GT(one->fullest.communication, 0);
  EXPECT_NEAR(one->fullest.compute + one->fullest.communication - one->fullest.overlapped, one->seconds, 1e-12);
  EXPECT_NEAR(other->fullest.overlapped, 0, 1e-12); // all on the compute lane
  EXPECT_EQ(one->commands.size(), size_t(one->count));
  double sum = 0, count = 0;
  for (const SimulatedTotal &total : one->totals) sum += total.seconds, count += total.count;
  EXPECT_NEAR(sum, one->fullest.compute + one->fullest.communication, 1e-12);
  EXPECT_EQ(count, one->count);
  // The threads of one process do one command of a device at a time.
  auto cpu = simulateStep(beside, clusterOf("cpu:2"));
  ASSERT_TRUE(cpu.isOk()) << cpu.status().message();
  EXPECT_NEAR(cpu->seconds, cpu->fullest.compute + cpu->fullest.communication, 1e-12);
}

// A pipeline of p equal stages and m microbatches: (m + p - 1) times what one takes forward and backward.
TEST(SimulatedStep, FillsAndDrainsPipelines) {
  for (const char *schedule : {"gpipe", "1f1b"})
    for (int64_t ranks : {2, 4})
      for (int64_t microbatches : {4, 8}) {
        SCOPED_TRACE(testing::Message() << schedule << ", " << ranks << " stages, " << microbatches << " microbatches");
        const plan::Plan plan = runtime::test::pipelinePlan(
            {.ranks = ranks, .schedule = schedule, .microbatches = microbatches, .rows = 64, .width = 512});
        Cluster cluster = clusterOf("a100-80g:" + std::to_string(ranks));
        cluster.node.latency = 0, cluster.node.bandwidth = 1e18; // messages take no time
        const CommandPrices prices(plan, cluster, meshOf({{"pp", ranks}, {"dp", 1}}));
        auto step = simulateStep(plan, cluster, true);
        ASSERT_TRUE(step.isOk()) << step.status().message();
        // Of a middle stage where there is one; the first has no gradient to hand on, the last has the loss.
        double slowest = 0, fastest = 1e9, update = 0;
        for (int p = 0; p < plan.programs_size(); ++p) {
          double both = 0;
          for (const plan::Fragment &fragment : plan.programs(p).fragments()) {
            double seconds = 0;
            for (const plan::Command &command : fragment.commands())
              if (runtime::laneOf(command) == runtime::computeLane) seconds += prices.of(command, p).seconds;
            (fragment.name() == "update" ? update : both) += seconds;
          }
          slowest = std::max(slowest, both), fastest = std::min(fastest, both);
        }
        const double waves = double(microbatches + ranks - 1);
        EXPECT_LE(step->seconds, waves * slowest + update);
        EXPECT_GE(step->seconds, waves * fastest);
        for (const SimulatedCommand &one : step->commands) EXPECT_LE(one.begin, one.end);
      }
}

// On a CPU one thread of a device does all its lanes' commands: after what a send waits for, at most one of the compute
// lane comes before it. A collective of all programs has one time.
TEST(SimulatedStep, TakesTurnsOnAThread) {
  const plan::Plan plan =
      runtime::test::pipelinePlan({.ranks = 2, .schedule = "gpipe", .microbatches = 8, .rows = 64, .width = 256});
  auto step = simulateStep(plan, clusterOf("cpu:2"), true);
  ASSERT_TRUE(step.isOk()) << step.status().message();
  std::vector<std::pair<double, double>> sums;
  for (const SimulatedCommand &one : step->commands) {
    if (one.command->has_collective() && one.command->collective().axes(0) == "pp")
      sums.emplace_back(one.begin, one.end);
    if (!one.command->has_transfer() || one.command->transfer().direction() != plan::Transfer::SEND) continue;
    double made = 0;
    int between = 0;
    for (const SimulatedCommand &other : step->commands)
      if (other.action == one.action && other.command->record_event() == one.command->wait_events(0)) made = other.end;
    for (const SimulatedCommand &other : step->commands)
      between += other.device == one.device && other.lane == runtime::computeLane && other.begin >= made &&
                 other.end <= one.begin;
    EXPECT_LE(between, 1) << one.command->name();
  }
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums[0], sums[1]);
}

// Devices that take turns on cores leave theirs to others while they wait.
TEST(SimulatedStep, KnowsSharedCores) {
  const plan::Plan plan = runtime::test::pipelinePlan({.ranks = 4, .microbatches = 4, .rows = 64, .width = 256});
  Cluster cluster = clusterOf("cpu:4");
  auto secondsWith = [&](double share) {
    cluster.device.coreShare = share;
    auto step = simulateStep(plan, cluster, true);
    EXPECT_TRUE(step.isOk()) << step.status().message();
    double last = 0;
    for (const SimulatedCommand &one : step->commands) last = std::max(last, one.end);
    EXPECT_DOUBLE_EQ(last, step->seconds);
    return step->seconds;
  };
  const double alone = secondsWith(1), half = secondsWith(0.5), quarter = secondsWith(0.25);
  EXPECT_LT(half, alone);
  EXPECT_LT(quarter, half);
  EXPECT_GT(quarter, alone * (0.3 + 0.7 * 4 / 7)); // all work for 4 of 7 waves of microbatches
}

// What the runtime refuses is not simulated either.
TEST(SimulatedStep, RefusesDamagedPlans) {
  const plan::Plan sound = runtime::test::mlpPlan({.dp = 2});
  auto commandWith = [](plan::Plan &plan, auto has) -> plan::Command & {
    for (plan::Command &command : *plan.mutable_programs(0)->mutable_fragments(0)->mutable_commands())
      if ((command.*has)()) return command;
    throw std::runtime_error("there is no such command");
  };
  auto launch = [&](plan::Plan &plan) -> auto & {
    return *commandWith(plan, &plan::Command::has_launch).mutable_launch();
  };
  auto collective = [&](plan::Plan &plan) -> auto & {
    return *commandWith(plan, &plan::Command::has_collective).mutable_collective();
  };
  auto product = [&](plan::Plan &plan) -> auto & { return commandWith(plan, &plan::Command::has_contract); };
  auto step = [](plan::Plan &plan) -> auto & { return *plan.mutable_programs(0)->mutable_routines(0); };
  const std::map<std::string, std::function<void(plan::Plan &)>> damages = {
      {"kernel 9999 of", [&](plan::Plan &plan) { launch(plan).set_kernel(9999); }},
      {"kernel -1 of", [&](plan::Plan &plan) { launch(plan).set_kernel(-1); }},
      {"runs fragment 77 of", [&](plan::Plan &plan) { step(plan).mutable_actions(0)->set_fragment(77); }},
      {"runs fragment -1 of", [&](plan::Plan &plan) { step(plan).mutable_actions(0)->set_fragment(-1); }},
      {"(attention): query", [&](plan::Plan &plan) { product(plan).mutable_attention(); }},
      {"(convolution): input", [&](plan::Plan &plan) { product(plan).mutable_convolution(); }},
      {"waits for event 99", [&](plan::Plan &plan) { product(plan).add_wait_events(99); }},
      {"the plan has 0 programs", [&](plan::Plan &plan) { plan.clear_programs(); }},
      {"no routine 'step', or one without", [&](plan::Plan &plan) { step(plan).clear_actions(); }},
      {"unknown mesh axis 'zz'", [&](plan::Plan &plan) { collective(plan).set_axes(0, "zz"); }},
      {"its 'op' is 99", [&](plan::Plan &plan) { collective(plan).set_op(plan::Collective::Op(99)); }},
      {"no routine 'step'", [&](plan::Plan &plan) { plan.mutable_programs(0)->clear_routines(); }}};
  ASSERT_TRUE(simulateStep(sound, clusterOf("cpu:2")).isOk());
  for (const auto &[what, damage] : damages) {
    plan::Plan plan = sound;
    damage(plan);
    auto simulated = simulateStep(plan, clusterOf("cpu:2"));
    ASSERT_FALSE(simulated.isOk()) << what;
    EXPECT_THAT(simulated.status().message(), testing::HasSubstr(what));
  }
  // A stall has its true cause.
  plan::Plan pipeline = runtime::test::pipelinePlan({.ranks = 2});
  for (plan::Fragment &fragment : *pipeline.mutable_programs(0)->mutable_fragments())
    for (plan::Command &command : *fragment.mutable_commands())
      if (command.name() == "send y0") command.mutable_transfer()->mutable_peer()->set_base(0);
  auto stalled = simulateStep(pipeline, clusterOf("cpu:2"));
  ASSERT_FALSE(stalled.isOk());
  EXPECT_THAT(stalled.status().message(), testing::HasSubstr("send y0"));
}

TEST(SimulatedStep, SaysWhatItCannot) {
  auto refused = [](const plan::Plan &plan, const std::string &cluster) {
    auto step = simulateStep(plan, clusterOf(cluster));
    return step ? "" : step.status().message();
  };
  EXPECT_EQ(refused(runtime::test::mlpPlan({.dp = 2}), "a100-80g:8"),
            "the plan is for 2 devices, and a100-80g:8 has 8");
  Cluster slow = clusterOf("cpu:2");
  slow.device.launchSeconds = 1e24;
  auto endless = simulateStep(runtime::test::mlpPlan({.dp = 2}), slow);
  ASSERT_FALSE(endless.isOk());
  EXPECT_THAT(endless.status().message(), testing::HasSubstr("a trace can hold 9e+09"));
}

} // namespace
} // namespace cleave::simulate
