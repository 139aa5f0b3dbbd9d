// Attention by cuDNN: what its graphs compute, by the fake that interprets them, is what the CPU's plain loops do; and
// which kinds of attention have engines on an H100, by the real one's word where it is installed.
#include "runtime/engine/device/cpu/cpu_device.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "test/unit/cuda/engines.h"
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <random>

namespace cleave::runtime::test {
namespace {

struct Kind {
  const char *name;
  int64_t queries = 1024, keys = 1024, features = 64, valueFeatures = 64, heads = 8, keyHeads = 8;
  std::optional<int64_t> left = std::nullopt, right = std::nullopt;
  double softCap = 0;
  bool isBiased = false;
};

constexpr int64_t samples = 2;

// Both passes, on dense [batch, positions, heads, features] one behind the other from `top` on.
std::pair<plan::Command, plan::Command> commandsOf(const Kind &kind, int64_t &top) {
  plan::Command forward;
  plan::Attention &c = *forward.mutable_attention();
  auto buffer = [&](int64_t heads, int64_t positions, int64_t features, plan::DType dtype = plan::BF16) {
    plan::Buffer made;
    made.set_dtype(dtype), made.set_offset(top);
    for (int64_t size : {samples, heads, positions, features}) made.add_shape(size);
    top += samples * heads * positions * features * (dtype == plan::F32 ? 4 : 2);
    top = (top + 255) / 256 * 256;
    return made;
  };
  auto strides = [](auto &field, int64_t heads, int64_t positions, int64_t features) {
    for (int64_t stride : {positions * heads * features, features, heads * features, int64_t(1)}) field.Add(stride);
  };
  const int64_t h = kind.heads, g = kind.keyHeads, s = kind.queries, t = kind.keys, d = kind.features,
                e = kind.valueFeatures;
  *c.mutable_query() = buffer(h, s, d), *c.mutable_key() = buffer(g, t, d), *c.mutable_value() = buffer(g, t, e);
  *c.mutable_output() = buffer(h, s, e), *c.mutable_stats() = buffer(h, s, 1, plan::F32);
  strides(*c.mutable_query_strides(), h, s, d), strides(*c.mutable_key_strides(), g, t, d);
  strides(*c.mutable_value_strides(), g, t, e), strides(*c.mutable_output_strides(), h, s, e);
  if (kind.isBiased) {
    *c.mutable_bias() = buffer(1, s, t);
    for (int64_t stride : {s * t, int64_t(0), t, int64_t(1)}) c.add_bias_strides(stride);
  }
  c.set_scale(0.25), c.set_soft_cap(kind.softCap);
  if (kind.left) c.set_left_bound(*kind.left);
  if (kind.right) c.set_right_bound(*kind.right);
  plan::Command backward = forward;
  plan::Attention &back = *backward.mutable_attention();
  back.set_pass(plan::Attention::BACKWARD);
  *back.mutable_output_gradient() = buffer(h, s, e), *back.mutable_query_gradient() = buffer(h, s, d);
  *back.mutable_key_gradient() = buffer(g, t, d), *back.mutable_value_gradient() = buffer(g, t, e);
  return {forward, backward};
}

class SmallAttention : public testing::TestWithParam<std::tuple<Kind, bool>> {};

TEST_P(SmallAttention, IsTheSameByCudnnsGraphs) {
  const auto &[kind, deterministic] = GetParam();
  int64_t top = 0;
  const auto [forward, backward] = commandsOf(kind, top);
  FakeGpu gpu;
  Engines engines(deterministic);
  const dist::Mesh mesh{{{"dp", 1}}};
  auto cpu = openCpuDevice(mesh, {.device = 0, .threads = 1, .kernels = nullptr});
  ASSERT_TRUE(cpu->allocate(top).isOk());
  cpu->enterThread();
  std::mt19937 engine(3);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < top / 2; ++i) storeFloat(plan::BF16, normal(engine), cpu->arena() + 2 * i);
  const std::vector<std::byte> start(cpu->arena(), cpu->arena() + top);
  for (const plan::Command &command : {forward, backward}) {
    Result<Prepared> prepared = cpu->prepare(command);
    ASSERT_TRUE(prepared.isOk()) << prepared.status().message();
    ASSERT_TRUE((*prepared)->run().isOk());
  }
  const std::vector<std::byte> computed = engines.run({forward, backward}, start);
  ASSERT_EQ(computed.size(), start.size());
  auto expectEqual = [&](const plan::Buffer &buffer, const char *role) {
    const int64_t width = buffer.dtype() == plan::F32 ? 4 : 2, count = byteSize(buffer) / width;
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = buffer.offset() + i * width;
      const double wanted = loadFloat(buffer.dtype(), cpu->arena() + at);
      difference = std::max(difference, std::abs(loadFloat(buffer.dtype(), computed.data() + at) - wanted));
      size = std::max(size, std::abs(wanted));
    }
    EXPECT_GT(size, 0) << role;
    EXPECT_LE(difference, size / 128) << role; // a rounding of bf16, and one that went the other way before
  };
  const plan::Attention &c = backward.attention();
  expectEqual(c.output(), "output"), expectEqual(c.stats(), "stats");
  expectEqual(c.query_gradient(), "query_gradient");
  expectEqual(c.key_gradient(), "key_gradient"), expectEqual(c.value_gradient(), "value_gradient");
}

Kind small(Kind kind) {
  kind.queries = std::min<int64_t>(kind.queries, 6), kind.keys = 6, kind.features = 8, kind.valueFeatures = 16;
  kind.heads = 2;
  return kind;
}
INSTANTIATE_TEST_SUITE_P(
    Kinds, SmallAttention,
    testing::Combine(testing::Values(small({.name = "plain", .keyHeads = 2}),
                                     small({.name = "causal", .keyHeads = 1, .right = 0}),
                                     small({.name = "last_key", .queries = 4, .keyHeads = 2, .right = 2}),
                                     small({.name = "window", .keyHeads = 1, .left = 2, .right = 0}),
                                     small({.name = "both_sides", .keyHeads = 2, .left = 3, .right = 1}),
                                     small({.name = "capped", .keyHeads = 1, .left = 2, .right = 0, .softCap = 0.5})),
                     testing::Bool()),
    [](const auto &info) {
      return std::string(std::get<0>(info.param).name) + (std::get<1>(info.param) ? "_deterministic" : "");
    });

// cuDNN 9.28.1 has engines for all of these.
TEST(CudaAttention, RealEnginesTakeItsKinds) {
  if (askedElsewhere("CudaAttention.RealEnginesTakeItsKinds")) return;
  FakeGpu gpu;
  const Kind kinds[] = {{.name = "plain"},
                        {.name = "causal", .right = 0},
                        {.name = "causal to the last key", .queries = 512, .right = 512},
                        {.name = "window", .left = 256, .right = 0},
                        {.name = "window on both sides", .left = 256, .right = 100},
                        {.name = "window, heads that share keys", .keyHeads = 2, .left = 256, .right = 0},
                        {.name = "window, odd keys", .queries = 1000, .keys = 1000, .left = 100, .right = 0},
                        {.name = "bias", .isBiased = true},
                        {.name = "causal with a bias", .right = 0, .isBiased = true},
                        {.name = "256 features", .features = 256, .valueFeatures = 256, .right = 0},
                        {.name = "192 and 128 features", .features = 192, .valueFeatures = 128, .right = 0},
                        {.name = "soft cap", .softCap = 30},
                        {.name = "soft cap, window", .left = 256, .right = 0, .softCap = 30}};
  Engines engines;
  for (const Kind &kind : kinds) {
    int64_t top = 0;
    const auto [forward, backward] = commandsOf(kind, top);
    EXPECT_EQ(engines.warningOf(forward), "") << kind.name;
    EXPECT_EQ(engines.warningOf(backward), "") << kind.name;
    if (kind.softCap != 0 || kind.keyHeads < kind.heads || kind.features == 192)
      EXPECT_EQ(Engines(/*deterministic=*/true).warningOf(backward), "") << kind.name << ", deterministic";
  }
  int64_t top = 0;
  const auto [forward, backward] = commandsOf({.name = "too wide", .features = 264, .valueFeatures = 264}, top);
  EXPECT_THAT(engines.warningOf(backward), testing::HasSubstr("cuDNN knows no engine"));
}

} // namespace
} // namespace cleave::runtime::test
