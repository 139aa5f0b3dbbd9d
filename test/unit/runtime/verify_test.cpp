#include "runtime/plan/code_digest.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/verify/verify.h"
#include "test/unit/processor_seconds.h"
#include "test/unit/runtime/mlp_plan.h"
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

namespace cleave::runtime::test {
namespace {

using testing::HasSubstr;

plan::Fragment &fragment(plan::Plan &plan) { return *plan.mutable_programs(0)->mutable_fragments(0); }
// Commands of the MLP plan, in order.
enum { Fc1, Relu, Fc2, SumY, Loss, GradW2, GradA, GradRelu, GradW1, GradB1, Bucket, Check, Sgd };

std::string after(const std::function<void(plan::Plan &)> &damage, MlpShape shape = {.dp = 2, .tp = 2}) {
  plan::Plan plan = mlpPlan(shape);
  EXPECT_TRUE(verifyPlan(plan).isOk()) << verifyPlan(plan).message();
  damage(plan);
  Status status = verifyPlan(plan);
  EXPECT_TRUE(status.isOk() || status.exitStatus() == 1);
  return status.message();
}
plan::Command &command(plan::Plan &plan, int index) { return *fragment(plan).mutable_commands(index); }

TEST(Verify, BuffersStayInTheArena) {
  EXPECT_THAT(after([](plan::Plan &p) { p.mutable_programs(0)->set_arena_bytes(p.programs(0).arena_bytes() - 64); }),
              HasSubstr("not inside the arena"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Fc1).mutable_contract()->mutable_lhs()->set_offset(-4); }),
              HasSubstr("not inside the arena"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Fc1).mutable_contract()->mutable_lhs()->set_offset(2); }),
              HasSubstr("not aligned"));
  EXPECT_THAT(
      after([](plan::Plan &p) { command(p, Fc1).mutable_contract()->mutable_lhs()->set_shape(0, int64_t(1) << 62); }),
      HasSubstr("not a valid buffer"));
  EXPECT_THAT(after([](plan::Plan &p) { p.mutable_parameters(1)->set_offset(0); }),
              HasSubstr("parameters 'b1' and 'w1' overlap"));
}

// A kernel writes where its launch says: as far as its extent goes, from where its buffers begin.
TEST(Verify, LaunchesStayInTheirBuffers) {
  auto launch = [](plan::Plan &p, int index) -> plan::Launch & { return *command(p, index).mutable_launch(); };
  EXPECT_THAT(after([&](plan::Plan &p) { launch(p, Relu).set_extent(launch(p, Relu).extent() + 4); }),
              HasSubstr("the kernel reaches elements 0 to "));
  EXPECT_THAT(after([&](plan::Plan &p) { launch(p, Relu).set_extent(int64_t(1) << 62); }),
              HasSubstr("the kernel reaches elements 0 to "));
  EXPECT_THAT(after([&](plan::Plan &p) { launch(p, Sgd).mutable_buffers(2)->set_shape(0, 1); }),
              HasSubstr("buffer 2, "));
  EXPECT_THAT(after([&](plan::Plan &p) { launch(p, Relu).mutable_buffers(0)->set_dtype(plan::U8); }),
              HasSubstr("its elements are u8, the kernel's have 4 bytes"));
  EXPECT_THAT(after([&](plan::Plan &p) { launch(p, Relu).set_grain(1); }), HasSubstr("which is compiled for"));
  EXPECT_THAT(after([&](plan::Plan &p) { launch(p, Relu).set_kernel(launch(p, Loss).kernel()); }),
              HasSubstr("for kernel 'mse'"));
  // The plan's declarations of its code are part of the digest.
  EXPECT_THAT(after([](plan::Plan &p) { p.mutable_kernels(0)->mutable_buffers(0)->set_elements(0); }),
              HasSubstr("does not belong to their code"));
  EXPECT_THAT(after([](plan::Plan &p) { p.mutable_kernels(0)->set_symbol("sgd"); }), HasSubstr("does not belong"));
  EXPECT_THAT(after([](plan::Plan &p) { p.clear_code_digest(); }), HasSubstr("compile it again"));
  EXPECT_THAT(after([](plan::Plan &p) {
                p.mutable_kernels(0)->clear_buffers();
                p.set_code_digest(codeDigest(p));
              }),
              HasSubstr("does not say what kernel 'relu' reaches"));
  EXPECT_THAT(after([](plan::Plan &p) { // of a CPU's plan, too, where they are an emulated GPU's
                *command(p, Fc1).add_launches() = command(p, Relu).launch();
                command(p, Fc1).mutable_launches(0)->mutable_buffers(0)->set_offset(int64_t(1) << 40);
              }),
              HasSubstr("not inside the arena"));
}

TEST(Verify, NumbersThatHostAndMachineTakeAreBounded) {
  EXPECT_THAT(after([](plan::Plan &p) {
                p.mutable_programs(0)->mutable_routines(0)->mutable_actions(0)->set_microbatch(int64_t(1) << 30);
              }),
              HasSubstr("and there are 1 actions"));
  EXPECT_THAT(after([](plan::Plan &p) { p.set_threads_per_device(1 << 30); }), HasSubstr("threads a device"));
  EXPECT_THAT(after([](plan::Plan &p) { p.mutable_training()->set_global_batch(int64_t(1) << 40); }),
              HasSubstr("a global batch of 1099511627776 samples"));
  EXPECT_THAT(after([](plan::Plan &p) {
                p.mutable_programs(0)->mutable_host_scalars(0)->mutable_buffer()->set_dtype(plan::F16);
              }),
              HasSubstr("is not what the host writes"));
  EXPECT_THAT(after([](plan::Plan &p) { p.mutable_programs(0)->set_library_workspace_bytes(INT64_MAX); }),
              HasSubstr("wants a memory of"));
  EXPECT_THAT(after([](plan::Plan &p) {
                plan::Source &file = *p.mutable_parameters(0)->mutable_file();
                file.set_dtype(plan::F32);
                file.set_length(4 * p.parameters(0).shape(0) * p.parameters(0).shape(1));
                file.set_path("../../etc/shadow");
              }),
              HasSubstr("outside of the model's folder"));
  EXPECT_THAT(after([](plan::Plan &p) {
                plan::Source &run = *p.mutable_parameters(0)->mutable_file()->add_runs();
                run.set_dtype(plan::F32);
                run.set_length(4);
              }),
              HasSubstr("the runs of its file slice are not of its elements"));
  EXPECT_THAT(after([](plan::Plan &p) {
                plan::Source &file = *p.mutable_parameters(0)->mutable_file();
                file.set_dtype(plan::F32);
                file.set_length(4 * p.parameters(0).shape(0) * p.parameters(0).shape(1));
                file.set_transposed(true);
                p.mutable_parameters(0)->clear_original_shape();
              }),
              HasSubstr("its file slice is transposed, and it is no matrix"));
}

TEST(Verify, CommandsFitTheirBuffers) {
  EXPECT_EQ(after([](plan::Plan &p) { command(p, Fc1).mutable_contract()->set_k(25); }),
            "fragment 'final': command 0 'fc1' (contract): lhs reaches elements 0 to 192 of f32[8x24] at " +
                std::to_string(mlpPlan({.dp = 2, .tp = 2}).programs(0).fragments(0).inputs(0).buffer().offset()) +
                ", which has 192");
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Fc1).mutable_contract()->mutable_lhs_strides()->RemoveLast(); }),
              HasSubstr("strides an operand"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Relu).mutable_launch()->set_kernel(99); }),
              HasSubstr("kernel 99 of 5"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Relu).mutable_launch()->mutable_buffers()->RemoveLast(); }),
              HasSubstr("1 buffers and 0 scalars for kernel 'relu'"));
  EXPECT_THAT(after([](plan::Plan &p) {
                plan::Contract &c = *command(p, Fc1).mutable_contract();
                c.set_k(int64_t(1) << 40);
                c.mutable_lhs_strides()->Set(1, 0), c.mutable_rhs_strides()->Set(0, 0);
              }),
              HasSubstr("neither operand has so many elements"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Fc1).mutable_contract()->mutable_lhs()->set_dtype(plan::F8E4M3); }),
              HasSubstr("floats of 8 bits multiply each other, into bf16 or f32: f8e4m3[8x24]"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, SumY).mutable_collective()->set_axes(0, "ep"); }),
              HasSubstr("unknown mesh axis 'ep'"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, SumY).clear_kind(); }), HasSubstr("has no kind"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, SumY).mutable_collective()->mutable_outputs(0)->set_shape(0, 4); }),
              HasSubstr("shapes do not fit"));
}

TEST(Verify, OffsetsFitOnEveryDevice) {
  auto copy = [](plan::Plan &p, int64_t stride) {
    plan::Command &c = *fragment(p).add_commands();
    *c.mutable_copy()->mutable_source() = p.programs(0).fragments(0).commands(Fc1).contract().lhs(); // 8x24
    *c.mutable_copy()->mutable_target() = p.programs(0).fragments(0).commands(Fc1).contract().lhs();
    c.mutable_copy()->add_sizes(96), c.mutable_copy()->add_source_strides(1), c.mutable_copy()->add_target_strides(1);
    auto &term = *c.mutable_copy()->mutable_source_offset()->add_terms();
    term.add_axes("dp"), term.add_axes("tp");
    term.set_stride(stride);
  };
  EXPECT_EQ(after([&](plan::Plan &p) { copy(p, 32); }), ""); // 3 * 32 + 96 = 192
  EXPECT_THAT(after([&](plan::Plan &p) { copy(p, 33); }), HasSubstr("source reaches elements 0 to 194"));
  EXPECT_THAT(after([&](plan::Plan &p) { copy(p, -1); }), HasSubstr("source reaches elements -3"));
  EXPECT_THAT(after([&](plan::Plan &p) { copy(p, INT64_MAX); }), HasSubstr("overflows"));
}

TEST(Verify, EventsAndHazards) {
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Fc2).add_wait_events(1); }),
              HasSubstr("waits for event 1, which no command before it records"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Fc2).set_record_event(2); }), HasSubstr("records event 2 again"));
  // The update does not wait for the all-reduce any more.
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Check).clear_wait_events(); }),
              HasSubstr("may run at the same time"));
  // The all-reduce does not wait for the last gradient.
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Bucket).clear_wait_events(); }),
              HasSubstr("may run at the same time"));
  EXPECT_EQ(after([](plan::Plan &p) { command(p, Bucket).set_stream(0), command(p, Bucket).clear_wait_events(); }), "");
}

// A GPU's collectives have a stream a mesh axis; hazards between two of those are found, too.
TEST(Verify, StreamsOfMeshAxes) {
  EXPECT_EQ(after([](plan::Plan &p) { command(p, Bucket).set_stream(firstAxisLane); }), "");
  EXPECT_THAT(after([](plan::Plan &p) {
                command(p, Bucket).set_stream(firstAxisLane + 1), command(p, Bucket).clear_wait_events();
              }),
              HasSubstr("may run at the same time"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Bucket).set_stream(numLanes); }),
              HasSubstr("its stream is 13, of 0 to 12"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Bucket).set_stream(-1); }), HasSubstr("its stream is -1"));

  dist::Mesh mesh{{{"pp", 2}, {"dp", 2}, {"tp", 2}}};
  plan::Mesh stored;
  for (const dist::MeshAxis &axis : mesh.axes) stored.add_axes()->set_name(axis.name);
  EXPECT_EQ(laneName(laneAlong(mesh, {"dp"}), stored), "communication over dp");
  EXPECT_EQ(laneName(laneAlong(mesh, {"tp", "dp"}), stored), "communication over dp"); // the outermost
  EXPECT_EQ(laneName(laneAlong(mesh, {"tp"}), stored), "communication over tp");
  EXPECT_EQ(laneName(laneAlong(mesh, {"pp"}), stored), "communication"); // in turn with sends
  EXPECT_EQ(laneName(laneAlong(mesh, {"dp", "pp"}), stored), "communication");
  EXPECT_EQ(laneName(laneAlong(mesh, {}), stored), "communication");
  EXPECT_EQ(laneName(computeLane, stored), "compute");
}

TEST(Verify, CollectiveOrder) {
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Bucket).mutable_collective()->set_sequence(1); }),
              HasSubstr("is number 0 of the collectives over {dp}, and says 1"));
  EXPECT_THAT(after([](plan::Plan &p) { command(p, Bucket).mutable_collective()->set_axes(0, "tp"); }),
              HasSubstr("is number 1 of the collectives over {tp}, and says 0"));
}

TEST(Verify, TakesNoLongerForManyDevices) {
  plan::Plan few = mlpPlan({.dp = 2, .tp = 2, .batch = 512, .hidden = 512});
  plan::Plan many = mlpPlan({.dp = 512, .tp = 512, .batch = 512, .hidden = 512});
  auto verify = [](const plan::Plan &plan) { EXPECT_TRUE(verifyPlan(plan).isOk()); };
  EXPECT_LT(cleave::test::processorSeconds([&] { verify(many); }),
            10 * cleave::test::processorSeconds([&] { verify(few); }));
}

// Whatever a number in the message is changed to: refused or accepted, never a crash.
TEST(Verify, ArbitraryNumbersNeverCrash) {
  std::mt19937 engine(11);
  const int64_t values[] = {0, 1, -1, 2, 3, 64, -64, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN, INT64_MAX / 8};
  std::function<void(google::protobuf::Message &)> mutate = [&](google::protobuf::Message &message) {
    const auto *reflection = message.GetReflection();
    std::vector<const google::protobuf::FieldDescriptor *> fields;
    reflection->ListFields(message, &fields);
    if (fields.empty()) return;
    const auto *field = fields[engine() % fields.size()];
    int64_t value = values[engine() % std::size(values)];
    using Field = google::protobuf::FieldDescriptor;
    if (field->is_repeated()) {
      int index = static_cast<int>(engine() % static_cast<size_t>(reflection->FieldSize(message, field)));
      if (field->cpp_type() == Field::CPPTYPE_MESSAGE)
        return mutate(*reflection->MutableRepeatedMessage(&message, field, index));
      if (field->cpp_type() == Field::CPPTYPE_INT64) reflection->SetRepeatedInt64(&message, field, index, value);
      if (engine() % 4 == 0) reflection->RemoveLast(&message, field);
      return;
    }
    if (field->cpp_type() == Field::CPPTYPE_MESSAGE) return mutate(*reflection->MutableMessage(&message, field));
    if (field->cpp_type() == Field::CPPTYPE_INT64) reflection->SetInt64(&message, field, value);
    if (field->cpp_type() == Field::CPPTYPE_INT32) reflection->SetInt32(&message, field, static_cast<int32_t>(value));
    if (field->cpp_type() == Field::CPPTYPE_ENUM)
      reflection->SetEnumValue(&message, field, static_cast<int>(engine() % 20));
  };
  plan::Plan whole = mlpPlan({.dp = 2, .tp = 2});
  whole.clear_kernel_object(), whole.clear_kernel_target();
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    plan::Plan plan = whole;
    mutate(plan);
    refused += !verifyPlan(plan).isOk();
  }
  EXPECT_GT(refused, 5000);
}

} // namespace
} // namespace cleave::runtime::test
