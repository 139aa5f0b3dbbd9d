// Steps of hand-made plans, command by command: prices by the formulas, orders by hand, pipelines by their closed form.
#include "compiler/simulate/simulate.h"
#include "runtime/plan/routine.h"
#include "test/unit/runtime/mlp_plan.h"
#include "test/unit/runtime/pipeline_plan.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_GT(one->communicationSeconds, 0);
  EXPECT_EQ(other->communicationSeconds, 0); // on the compute lane
  EXPECT_EQ(one->commands.size(), size_t(one->count));
  double sum = 0;
  for (const SimulatedTotal &total : one->totals) sum += total.seconds;
  EXPECT_DOUBLE_EQ(sum, one->computeSeconds + one->communicationSeconds);
  // The threads of one process do one command of a device at a time.
  auto cpu = simulateStep(beside, clusterOf("cpu:2"));
  ASSERT_TRUE(cpu.isOk()) << cpu.status().message();
  EXPECT_DOUBLE_EQ(cpu->seconds, cpu->computeSeconds + cpu->communicationSeconds);
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

TEST(SimulatedStep, SaysWhatItCannot) {
  auto refused = [](const plan::Plan &plan, const std::string &cluster) {
    auto step = simulateStep(plan, clusterOf(cluster));
    return step ? "" : step.status().message();
  };
  EXPECT_EQ(refused(runtime::test::mlpPlan({.dp = 2}), "a100-80g:8"),
            "the plan is for 2 devices, and a100-80g:8 has 8");
  plan::Plan nothing = runtime::test::mlpPlan({});
  nothing.mutable_programs(0)->clear_routines();
  EXPECT_EQ(refused(nothing, "cpu:1"), "the plan has no routine 'step'");
}

} // namespace
} // namespace cleave::simulate
