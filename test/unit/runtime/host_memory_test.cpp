// Parameters that lie in the host's memory: the MLP plan with its first weight there, copied to where it lay before the
// step and back after it.
#include "runtime/engine/comm/local.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/verify/verify.h"
#include "test/unit/runtime/mlp_weights.h"
#include <cstring>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave::runtime::test {
namespace {

using testing::HasSubstr;

constexpr int fetched = 1000, updated = 1001; // events
constexpr int64_t hostBegin = 128;            // where it lies there

plan::Plan hostPlan(const MlpShape &shape) {
  plan::Plan plan = mlpPlan(shape);
  plan::Parameter &weight = *plan.mutable_parameters(0);
  plan::Program &program = *plan.mutable_programs(0);
  plan::Fragment &fragment = *program.mutable_fragments(0);
  plan::Buffer device;
  device.set_offset(weight.offset());
  device.set_dtype(weight.dtype());
  device.add_shape(elementCount(weight.shape()) / shape.tp);
  plan::Buffer host = device;
  host.set_offset(hostBegin);
  host.set_on_host(true);
  weight.set_on_host(true);
  weight.set_offset(hostBegin);
  program.set_host_bytes(hostBegin + byteSize(host));
  auto copy = [](const plan::Buffer &from, const plan::Buffer &to) {
    plan::Command command;
    command.set_stream(1);
    plan::Copy &copy = *command.mutable_copy();
    *copy.mutable_source() = from;
    *copy.mutable_target() = to;
    copy.add_sizes(elementCount(from.shape()));
    copy.add_source_strides(1);
    copy.add_target_strides(1);
    return command;
  };
  plan::Command fetch = copy(host, device), evict = copy(device, host);
  fetch.set_name("fetch");
  fetch.set_record_event(fetched);
  evict.set_name("evict");
  evict.add_wait_events(updated);
  auto commands = fragment.commands();
  fragment.clear_commands();
  *fragment.add_commands() = fetch;
  for (const plan::Command &command : commands) *fragment.add_commands() = command;
  fragment.mutable_commands(1)->add_wait_events(fetched);
  plan::Command &last = *fragment.mutable_commands(fragment.commands_size() - 1);
  EXPECT_EQ(last.record_event(), 0);
  last.set_record_event(updated);
  *fragment.add_commands() = evict;
  return plan;
}

TEST(HostMemory, WeightThatPassesThroughTheDeviceTrainsAsThePlainLoopsDo) {
  MlpShape shape{.dp = 2, .tp = 2};
  plan::Plan plan = hostPlan(shape);
  Result<dist::Mesh> mesh = meshOf(plan.mesh());
  auto executor = Executor::create(plan, std::make_unique<LocalFabric>(*mesh), {});
  ASSERT_TRUE(executor) << executor.status().message();
  MlpData data = mlpData(shape);
  loadWeights(**executor, data);
  std::vector<double> expected = mlpLosses(shape, data, 10);
  for (int step = 0; step < 10; ++step) {
    const std::byte *inputs[] = {reinterpret_cast<const std::byte *>(data.x.data()),
                                 reinterpret_cast<const std::byte *>(data.t.data())};
    auto outputs = (*executor)->run("step", inputs, step);
    ASSERT_TRUE(outputs) << outputs.status().message();
    EXPECT_NEAR(outputs->at("loss"), expected[size_t(step)], 1e-5 * expected[size_t(step)]) << "step " << step;
  }
  // Bytes on the host are counted apart, and read where they lie.
  EXPECT_EQ((*executor)->hostBytes(), plan.programs(0).host_bytes());
  ShardBytes weight = (*executor)->shard(0, plan.parameters(0), ShardAccess::Read);
  EXPECT_NE(std::memcmp(weight.data(), data.w1.data(), 4), 0) << "the step has written it back";
}

std::string after(const std::function<void(plan::Plan &, plan::Fragment &)> &damage) {
  plan::Plan plan = hostPlan({.dp = 2, .tp = 2});
  EXPECT_TRUE(verifyPlan(plan).isOk()) << verifyPlan(plan).message();
  damage(plan, *plan.mutable_programs(0)->mutable_fragments(0));
  return verifyPlan(plan).message();
}

TEST(HostMemory, IsVerifiedAsTheArena) {
  EXPECT_THAT(after([](plan::Plan &, plan::Fragment &f) { f.mutable_commands(1)->clear_wait_events(); }),
              HasSubstr("'fetch' (stream 1) and command 1 'fc1' (stream 0) may run at the same time"));
  EXPECT_THAT(
      after([](plan::Plan &, plan::Fragment &f) { f.mutable_commands(f.commands_size() - 1)->clear_wait_events(); }),
      HasSubstr("may run at the same time"));
  // The two copies are on streams of their own: without an order between them they meet in the host's memory.
  EXPECT_THAT(after([](plan::Plan &p, plan::Fragment &f) {
                plan::Command again = f.commands(0);
                again.set_name("again");
                again.clear_record_event();
                again.mutable_copy()->mutable_target()->set_offset(p.programs(0).arena_bytes());
                p.mutable_programs(0)->set_arena_bytes(2 * p.programs(0).arena_bytes());
                *f.add_commands() = again;
              }),
              testing::AllOf(HasSubstr("'again' (stream 1) may run at the same time"), HasSubstr("'evict'")));
  EXPECT_THAT(after([](plan::Plan &p, plan::Fragment &) {
                p.mutable_programs(0)->set_host_bytes(p.programs(0).host_bytes() - 4);
              }),
              HasSubstr("not inside the host's memory"));
  EXPECT_THAT(after([](plan::Plan &, plan::Fragment &f) {
                f.mutable_commands(1)->mutable_contract()->mutable_rhs()->set_on_host(true);
              }),
              HasSubstr("which only parameters and copies reach"));
  EXPECT_THAT(after([](plan::Plan &, plan::Fragment &f) {
                f.mutable_commands(0)->mutable_copy()->mutable_target()->set_on_host(true);
              }),
              HasSubstr("a copy within the host's memory"));
  EXPECT_THAT(
      after([](plan::Plan &, plan::Fragment &f) { f.mutable_commands(0)->mutable_copy()->set_source_strides(0, 2); }),
      HasSubstr("moves one run of bytes"));
  EXPECT_THAT(after([](plan::Plan &p, plan::Fragment &) {
                p.mutable_parameters(1)->set_on_host(true);
                p.mutable_parameters(1)->set_offset(hostBegin);
              }),
              HasSubstr("overlap in the host's memory"));
}

TEST(HostMemory, CopiesHaveALaneEachWay) {
  plan::Plan plan = hostPlan({});
  const plan::Fragment &fragment = plan.programs(0).fragments(0);
  EXPECT_EQ(laneOf(fragment.commands(0)), fetchLane);
  EXPECT_EQ(laneOf(fragment.commands(fragment.commands_size() - 1)), evictLane);
}

} // namespace
} // namespace cleave::runtime::test
