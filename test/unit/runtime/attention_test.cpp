// Attention as a command: its plain loops against the formula and its finite differences, on strided operands, with
// heads that share keys; and what the verifier says of wrong ones.
#include "runtime/engine/device/cpu/cpu_device.h"
#include "runtime/plan/attention_form.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/verify/verify.h"
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

namespace cleave::runtime::test {
namespace {

constexpr int64_t b = 2, h = 4, g = 2, s = 3, t = 5, d = 8, e = 16;

// Query, key and value lie in one tensor [b, max(s, t), h d + g d + g e], as a projection writes them.
constexpr int64_t rows = 5, row = h * d + g * d + g * e;

plan::Buffer bufferAt(int64_t &top, std::initializer_list<int64_t> shape, plan::DType dtype) {
  plan::Buffer buffer;
  buffer.set_offset(top);
  buffer.set_dtype(dtype);
  for (int64_t size : shape) buffer.add_shape(size);
  top += (byteSize(buffer) + 63) / 64 * 64;
  return buffer;
}
template <typename Field> void put(Field &field, std::initializer_list<int64_t> values) {
  for (int64_t value : values) field.Add(value);
}

// The keys that a query sees: none, causal, causal to the last key, a sliding window, both sides.
constexpr int64_t unbounded = -1;
struct Bounds {
  int64_t left = unbounded, right = unbounded;
};
constexpr Bounds toLastKey{.right = t - s};
class Attention : public testing::TestWithParam<std::tuple<Bounds, bool, double>> {
protected:
  void SetUp() override {
    bounds = std::get<0>(GetParam()), biased = std::get<1>(GetParam()), cap = std::get<2>(GetParam());
    int64_t top = 0;
    plan::Buffer packed = bufferAt(top, {b, rows, row}, plan::F64);
    plan::Attention &c = *forward.mutable_attention();
    auto part = [&](int64_t from, std::initializer_list<int64_t> shape) {
      plan::Buffer buffer = packed;
      buffer.set_offset(packed.offset() + from * 8);
      buffer.clear_shape();
      for (int64_t size : shape) buffer.add_shape(size);
      return buffer;
    };
    *c.mutable_query() = part(0, {b, h, s, d});
    *c.mutable_key() = part(h * d, {b, g, t, d});
    *c.mutable_value() = part(h * d + g * d, {b, g, t, e});
    put(*c.mutable_query_strides(), {rows * row, d, row, 1});
    put(*c.mutable_key_strides(), {rows * row, d, row, 1});
    put(*c.mutable_value_strides(), {rows * row, e, row, 1});
    *c.mutable_output() = bufferAt(top, {b, h, s, e}, plan::F64);
    put(*c.mutable_output_strides(), {s * h * e, e, h * e, 1});
    *c.mutable_stats() = bufferAt(top, {b, h, s}, plan::F32);
    if (biased) {
      *c.mutable_bias() = bufferAt(top, {b, 1, s, t}, plan::F64);
      put(*c.mutable_bias_strides(), {s * t, 0, t, 1});
    }
    c.set_scale(0.3);
    c.set_soft_cap(cap);
    if (bounds.left != unbounded) c.set_left_bound(bounds.left);
    if (bounds.right != unbounded) c.set_right_bound(bounds.right);
    backward = forward;
    plan::Attention &back = *backward.mutable_attention();
    back.set_pass(plan::Attention::BACKWARD);
    *back.mutable_output_gradient() = bufferAt(top, {b, h, s, e}, plan::F64);
    *back.mutable_query_gradient() = bufferAt(top, {b, h, s, d}, plan::F64);
    *back.mutable_key_gradient() = bufferAt(top, {b, g, t, d}, plan::F64);
    *back.mutable_value_gradient() = bufferAt(top, {b, g, t, e}, plan::F64);
    packedBackward = backward;
    plan::Attention &parts = *packedBackward.mutable_attention();
    packedGradient = bufferAt(top, {b, rows, row}, plan::F64);
    for (auto [gradient, from] : {std::pair{parts.mutable_query_gradient(), int64_t(0)},
                                  {parts.mutable_key_gradient(), h * d},
                                  {parts.mutable_value_gradient(), h * d + g * d}})
      gradient->set_offset(packedGradient.offset() + from * 8);
    put(*parts.mutable_query_gradient_strides(), {rows * row, d, row, 1});
    put(*parts.mutable_key_gradient_strides(), {rows * row, d, row, 1});
    put(*parts.mutable_value_gradient_strides(), {rows * row, e, row, 1});
    device = openCpuDevice(mesh, {.device = 0, .threads = 2, .kernels = nullptr});
    ASSERT_TRUE(device->allocate(top).isOk());
    device->enterThread();
    std::mt19937 engine(7);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (int64_t i = 0; i < top / 8; ++i) reinterpret_cast<double *>(device->arena())[i] = uniform(engine);
  }

  double *at(const plan::Buffer &buffer) { return reinterpret_cast<double *>(device->arena() + buffer.offset()); }
  void run(const plan::Command &command) {
    Status status = verifyCommand(command, plan::Plan(), mesh);
    ASSERT_TRUE(status.isOk()) << status.message();
    Result<Prepared> prepared = device->prepare(command);
    ASSERT_TRUE(prepared.isOk()) << prepared.status().message();
    ASSERT_TRUE((*prepared)->run().isOk());
  }
  // out[i][head][query], from the packed operands as they are now.
  std::vector<double> formula() {
    const plan::Attention &c = forward.attention();
    std::vector<double> out;
    for (int64_t i = 0; i < b; ++i)
      for (int64_t q = 0; q < s; ++q)
        for (int64_t head = 0; head < h; ++head) {
          std::vector<double> p(t), result(e);
          double sum = 0;
          for (int64_t k = 0; k < t; ++k) {
            double x = 0;
            for (int64_t f = 0; f < d; ++f)
              x += at(c.query())[i * rows * row + q * row + head * d + f] *
                   at(c.key())[i * rows * row + k * row + head / (h / g) * d + f];
            x = cap != 0 ? cap * std::tanh(x * 0.3 / cap) : x * 0.3;
            x += (biased ? at(c.bias())[(i * s + q) * t + k] : 0);
            const bool isBefore = bounds.left != unbounded && q - k >= bounds.left;
            const bool isAfter = bounds.right != unbounded && k - q > bounds.right;
            sum += p[k] = isBefore || isAfter ? 0 : std::exp(x);
          }
          for (int64_t k = 0; k < t; ++k)
            for (int64_t f = 0; f < e; ++f)
              result[f] += p[k] / sum * at(c.value())[i * rows * row + k * row + head / (h / g) * e + f];
          out.insert(out.end(), result.begin(), result.end());
        }
    return out;
  }
  double loss() { // the output times its gradient
    std::vector<double> out = formula();
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * at(backward.attention().output_gradient())[i];
    return sum;
  }
  // `features` of every head and position of the packed operand from `operand` on, and its dense gradient.
  void expectGradient(double *operand, const double *gradient, int64_t heads, int64_t positions, int64_t features) {
    for (int64_t i = 0; i < b; ++i)
      for (int64_t position = 0; position < positions; ++position)
        for (int64_t f = 0; f < heads * features; ++f) {
          double &x = operand[i * rows * row + position * row + f], kept = x, step = 1e-5;
          x = kept + step;
          double above = loss();
          x = kept - step;
          double below = loss();
          x = kept;
          ASSERT_NEAR(gradient[(i * positions + position) * heads * features + f], (above - below) / (2 * step), 2e-6);
        }
  }

  Bounds bounds;
  bool biased = false;
  double cap = 0;
  plan::Command forward, backward, packedBackward;
  plan::Buffer packedGradient; // [b, rows, row], of packedBackward
  dist::Mesh mesh{{{"dp", 1}}};
  std::unique_ptr<Device> device;
};

TEST_P(Attention, IsTheFormulaAndItsDerivative) {
  run(forward);
  std::vector<double> expected = formula();
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(at(forward.attention().output())[i], expected[i], 1e-12);
  run(backward);
  const plan::Attention &c = backward.attention();
  expectGradient(at(c.query()), at(c.query_gradient()), h, s, d);
  expectGradient(at(c.key()), at(c.key_gradient()), g, t, d);
  expectGradient(at(c.value()), at(c.value_gradient()), g, t, e);
}
TEST_P(Attention, WritesPartsOfAPackedGradient) {
  run(forward);
  run(backward);
  const double untouched = 1e30;
  std::fill_n(at(packedGradient), b * rows * row, untouched);
  run(packedBackward);
  const plan::Attention &c = backward.attention();
  for (int64_t i = 0; i < b; ++i)
    for (int64_t position = 0; position < rows; ++position)
      for (int64_t x = 0; x < row; ++x) {
        double expected = untouched; // the queries are fewer
        if (x >= (h + g) * d)
          expected = at(c.value_gradient())[(i * t + position) * g * e + x - (h + g) * d];
        else if (x >= h * d)
          expected = at(c.key_gradient())[(i * t + position) * g * d + x - h * d];
        else if (position < s)
          expected = at(c.query_gradient())[(i * s + position) * h * d + x];
        ASSERT_EQ(at(packedGradient)[(i * rows + position) * row + x], expected);
      }
}
INSTANTIATE_TEST_SUITE_P(Masks, Attention,
                         testing::Combine(testing::Values(Bounds{}, Bounds{.right = 0}, toLastKey,
                                                          Bounds{.left = 2, .right = 0}, Bounds{.left = 1, .right = 3}),
                                          testing::Bool(), testing::Values(0.0, 0.5)));

class WrongAttention : public Attention {};
TEST_P(WrongAttention, IsRefused) {
  auto refuses = [&](plan::Command command, const char *why, auto change) {
    change(*command.mutable_attention());
    Status status = verifyCommand(command, plan::Plan(), mesh);
    EXPECT_FALSE(status.isOk()) << why;
    EXPECT_THAT(status.message(), testing::HasSubstr(why));
  };
  auto expectRefused = [&](const char *why, auto change) { refuses(backward, why, change); };
  expectRefused("sizes that are no attention",
                [](plan::Attention &c) { c.mutable_key()->set_shape(1, 3), c.mutable_value()->set_shape(1, 3); });
  expectRefused("needs four strides", [](plan::Attention &c) { c.mutable_query_strides()->RemoveLast(); });
  expectRefused("output is not dense", [](plan::Attention &c) { c.set_output_strides(1, 1); });
  expectRefused("a soft cap that is no positive number", [](plan::Attention &c) { c.set_soft_cap(-1); });
  expectRefused("a soft cap that is no positive number", [](plan::Attention &c) { c.set_soft_cap(INFINITY); });
  const char *unfit = "bounds that leave a query without keys, or hide nothing";
  expectRefused(unfit, [](plan::Attention &c) { c.set_right_bound(-1); });
  expectRefused(unfit, [](plan::Attention &c) { c.set_right_bound(t); });
  expectRefused(unfit, [](plan::Attention &c) { c.set_left_bound(0); });
  expectRefused(unfit, [](plan::Attention &c) { c.set_left_bound(s); });
  expectRefused("without stats", [](plan::Attention &c) { c.clear_stats(); });
  expectRefused("key_gradient", [](plan::Attention &c) { c.clear_key_gradient(); });
  expectRefused("bias has a stride where it is repeated", [](plan::Attention &c) { c.set_bias_strides(1, 4); });
  auto expectPackedRefused = [&](const char *why, auto change) { refuses(packedBackward, why, change); };
  expectPackedRefused("key_gradient needs four strides, has 3",
                      [](plan::Attention &c) { c.mutable_key_gradient_strides()->RemoveLast(); });
  expectPackedRefused("query_gradient has elements that meet",
                      [](plan::Attention &c) { c.set_query_gradient_strides(2, h * d - 1); });
  expectPackedRefused("value_gradient has elements that meet",
                      [](plan::Attention &c) { c.set_value_gradient_strides(1, 0); });
  expectPackedRefused("query_gradient and key_gradient overlap",
                      [](plan::Attention &c) { c.mutable_key_gradient()->set_offset(c.key_gradient().offset() - 8); });
  expectPackedRefused("query_gradient and value_gradient overlap",
                      [](plan::Attention &c) { c.set_value_gradient_strides(2, row + 1); });
  // A strided operand counts as all that lies between its first and last element.
  std::vector<Access> accesses = attentionAccesses(backward.attention());
  EXPECT_EQ(byteSize(*accesses[0].buffer), 8 * ((b - 1) * rows * row + (s - 1) * row + h * d));
  accesses = attentionAccesses(packedBackward.attention());
  EXPECT_EQ(byteSize(*accesses.back().buffer), 8 * (b * rows * row - (h + g) * d));
}
// One layout a case: strides of batch, heads, positions and features, and elements from one gradient to the next.
struct Layout {
  AttentionStrides strides;
  int64_t between;
  bool isGood;
};
TEST(PackedGradients, LieApartInEachOrder) {
  constexpr int64_t samples = 2, heads = 3, positions = 4, features = 8, whole = samples * heads * positions * features;
  constexpr int64_t row = heads * features;
  const Layout layouts[] = {
      {{positions * row, features, row, 1}, whole, true},                                // one after the other
      {{positions * 3 * row, features, 3 * row, 1}, row, true},                          // [b, s, 3, h, d]
      {{3 * row, features, samples * 3 * row, 1}, row, true},                            // [s, b, 3, h, d]
      {{positions * 3 * row, 3 * features, 3 * row, 1}, features, true},                 // [b, s, h, 3, d]
      {{3 * positions * row, positions * features, features, 1}, positions * row, true}, // [b, 3, h, s, d]
      {{positions * 3 * row, features, 3 * row, 1}, row - features, false},              // heads meet
      {{positions * 3 * row, features, 3 * row, 1}, row + features, false},              // the third meets the next row
      {{positions * 3 * row, 3 * features, 3 * row, 1}, features + 1, false},            // ... or the next head
      {{3 * positions * row, positions * features, features, 1}, positions * row - 1, false},
  };
  for (const Layout &layout : layouts) {
    plan::Command command;
    plan::Attention &c = *command.mutable_attention();
    c.set_pass(plan::Attention::BACKWARD);
    int64_t top = 0;
    for (plan::Buffer *buffer :
         {c.mutable_query(), c.mutable_key(), c.mutable_value(), c.mutable_output(), c.mutable_output_gradient()})
      *buffer = bufferAt(top, {samples, heads, positions, features}, plan::BF16);
    for (auto *strides :
         {c.mutable_query_strides(), c.mutable_key_strides(), c.mutable_value_strides(), c.mutable_output_strides()})
      put(*strides, {positions * row, features, row, 1});
    *c.mutable_stats() = bufferAt(top, {samples, heads, positions}, plan::F32);
    int64_t offset = top;
    for (auto [buffer, strides] : {std::pair{c.mutable_query_gradient(), c.mutable_query_gradient_strides()},
                                   {c.mutable_key_gradient(), c.mutable_key_gradient_strides()},
                                   {c.mutable_value_gradient(), c.mutable_value_gradient_strides()}}) {
      *buffer = c.query();
      buffer->set_offset(offset);
      strides->Assign(layout.strides.begin(), layout.strides.end());
      offset += layout.between * 2;
    }
    Status status = verifyCommand(command, plan::Plan(), dist::Mesh());
    EXPECT_EQ(status.isOk(), layout.isGood) << &layout - layouts << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Biased, WrongAttention, testing::Values(std::tuple{Bounds{.right = 0}, true, 0.0}));

} // namespace
} // namespace cleave::runtime::test
