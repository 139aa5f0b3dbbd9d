// Every command of the CPU device against plain loops in double.
#include "runtime/base/strided_copy.h"
#include "runtime/engine/device/cpu/cpu_device.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/plan/verify/verify.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace cleave::runtime::test {
namespace {

class Commands : public testing::Test {
protected:
  void SetUp() override {
    device = openCpuDevice(mesh, {.device = 1, .threads = 2, .kernels = nullptr});
    ASSERT_TRUE(device->allocate(arenaBytes).isOk());
    device->enterThread();
    reset();
  }
  void reset() { // new values everywhere
    top = 0;
    std::mt19937 engine(3);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < arenaBytes / 4; ++i) floats()[i] = uniform(engine);
  }
  float *floats() { return reinterpret_cast<float *>(device->arena()); }
  plan::Buffer buffer(std::vector<int64_t> shape, plan::DType dtype = plan::F32) {
    plan::Buffer out;
    out.set_offset(top);
    out.set_dtype(dtype);
    for (int64_t size : shape) out.add_shape(size);
    top += (byteSize(out) + 63) / 64 * 64;
    EXPECT_LE(top, arenaBytes);
    return out;
  }
  template <typename T = float> T *at(const plan::Buffer &buffer) {
    return reinterpret_cast<T *>(device->arena() + buffer.offset());
  }
  std::vector<float> copyOf(const plan::Buffer &buffer) {
    std::vector<float> values;
    for (int64_t i = 0, width = byteSize(buffer.dtype()); i < elementCount(buffer.shape()); ++i)
      values.push_back(static_cast<float>(loadFloat(buffer.dtype(), at<std::byte>(buffer) + i * width)));
    return values;
  }
  // The bytes that reset() leaves are, in 16 bits, no number between -1 and 1.
  void randomize(const plan::Buffer &buffer) {
    std::mt19937 engine(static_cast<unsigned>(buffer.offset()));
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (int64_t i = 0, width = byteSize(buffer.dtype()); i < elementCount(buffer.shape()); ++i)
      storeFloat(buffer.dtype(), uniform(engine), at<std::byte>(buffer) + i * width);
  }
  // The error that a sum of `terms` products of such values may have: fp32 sums, and one rounding of the result.
  static double roundingOf(plan::DType dtype, double value) {
    double unit = dtype == plan::BF16 ? 0x1p-8 : dtype == plan::F16 ? 0x1p-11 : 0;
    return 1e-5 + unit * std::abs(value);
  }
  Status run(const plan::Command &command) {
    plan::Plan plan;
    CLEAVE_RETURN_IF_ERROR(verifyCommand(command, plan, mesh));
    Result<Prepared> prepared = device->prepare(command);
    if (!prepared) return prepared.status();
    CLEAVE_RETURN_IF_ERROR(device->finishPreparing());
    return (*prepared)->run();
  }
  void expectRuns(const plan::Command &command) {
    Status status = run(command);
    ASSERT_TRUE(status.isOk()) << status.message();
  }
  static constexpr int64_t arenaBytes = 5 << 20;
  dist::Mesh mesh{{{"tp", 2}}};
  std::unique_ptr<Device> device;
  int64_t top = 0;
};

struct ContractCase {
  std::vector<int64_t> batch;
  int64_t m, n, k;
  std::vector<int64_t> lhs, rhs, out; // strides
  bool accumulate = false, bias = false;
};

int64_t reach(const std::vector<int64_t> &batch, int64_t a, int64_t b, const std::vector<int64_t> &strides) {
  int64_t most = (a - 1) * strides[batch.size()] + (b - 1) * strides[batch.size() + 1];
  for (size_t d = 0; d < batch.size(); ++d) most += (batch[d] - 1) * strides[d];
  return most + 1;
}

TEST_F(Commands, ContractWithAnyStrides) {
  const std::vector<ContractCase> cases = {
      {{}, 5, 7, 3, {3, 1}, {7, 1}, {7, 1}},
      {{}, 5, 7, 3, {1, 5}, {1, 3}, {7, 1}},
      {{}, 64, 48, 32, {32, 1}, {48, 1}, {48, 1}, true, true},
      {{}, 6, 8, 4, {4, 1}, {8, 1}, {1, 6}}, // result by columns
      {{}, 6, 8, 4, {4, 1}, {8, 1}, {1, 6}, true},
      {{}, 6, 8, 4, {4, 1}, {8, 1}, {1, 6}, false, true},
      {{}, 1, 9, 16, {16, 1}, {9, 1}, {9, 1}},
      {{}, 9, 1, 16, {16, 1}, {1, 1}, {1, 1}},
      {{}, 1, 1, 33, {33, 1}, {1, 1}, {1, 1}},
      {{}, 4, 4, 1, {1, 1}, {4, 1}, {4, 1}},
      {{}, 4, 5, 6, {12, 2}, {10, 2}, {5, 1}},           // no unit stride
      {{3}, 4, 5, 6, {24, 6, 1}, {0, 5, 1}, {20, 5, 1}}, // one weight for all: folds into m
      {{3}, 4, 5, 6, {24, 6, 1}, {0, 5, 1}, {20, 5, 1}, true, true},
      {{3}, 4, 5, 6, {0, 6, 1}, {30, 5, 1}, {20, 5, 1}}, // one lhs for all
      {{3}, 4, 5, 6, {24, 6, 1}, {30, 5, 1}, {20, 5, 1}},
      {{2, 3}, 8, 8, 4, {96, 4, 12, 1}, {96, 4, 1, 12}, {192, 64, 8, 1}}, // attention scores from [b, s, h, d]
      {{2, 3}, 8, 4, 8, {192, 64, 8, 1}, {96, 4, 12, 1}, {96, 4, 12, 1}}, // probabilities times v, back into [b, s, h,
                                                                          // d]
      {{2, 3}, 8, 4, 8, {192, 64, 1, 8}, {96, 4, 12, 1}, {96, 4, 12, 1}}, // and transposed
      // Sequence before samples, [s, b h, d]: scores, their sums over values, and those of their transpose.
      {{6}, 5, 5, 4, {4, 24, 1}, {4, 1, 24}, {25, 5, 1}},
      {{6}, 5, 4, 5, {25, 5, 1}, {4, 24, 1}, {4, 24, 1}},
      {{6}, 5, 4, 5, {25, 1, 5}, {4, 24, 1}, {4, 24, 1}, true},
      {{6}, 5, 4, 5, {25, 5, 1}, {4, 24, 1}, {4, 24, 1}, true, true},
      {{6}, 5, 4, 5, {25, 5, 1}, {0, 4, 1}, {4, 24, 1}},
      {{2, 3, 2}, 3, 4, 5, {90, 30, 15, 5, 1}, {0, 20, 0, 4, 1}, {72, 24, 12, 4, 1}},
      {{1}, 1, 6, 4, {4, 4, 1}, {24, 6, 1}, {6, 6, 1}},
      {{7}, 1, 6, 4, {4, 4, 1}, {0, 6, 1}, {6, 6, 1}},      // rows from the batch
      {{}, 1024, 1040, 3, {1, 1024}, {1040, 1}, {1040, 1}}, // the gradient of large weights
      {{}, 1024, 1040, 3, {1, 1024}, {1040, 1}, {1040, 1}, true, true},
  };
  // Operands and result: of 16-bit operands the result may be the sum before it is rounded.
  const std::pair<plan::DType, plan::DType> types[] = {{plan::F32, plan::F32},
                                                       {plan::BF16, plan::BF16},
                                                       {plan::BF16, plan::F32},
                                                       {plan::F16, plan::F16},
                                                       {plan::F16, plan::F32}};
  for (size_t index = 0; index < cases.size() * std::size(types); ++index) {
    const ContractCase &c = cases[index % cases.size()];
    auto [type, resultType] = types[index / cases.size()];
    if (c.bias && type != plan::F32) continue;
    SCOPED_TRACE(name(type) + std::string(" to ") + name(resultType) + ", case " +
                 std::to_string(index % cases.size()));
    reset();
    plan::Command command;
    plan::Contract &contract = *command.mutable_contract();
    *contract.mutable_lhs() = buffer({reach(c.batch, c.m, c.k, c.lhs)}, type);
    *contract.mutable_rhs() = buffer({reach(c.batch, c.k, c.n, c.rhs)}, type);
    *contract.mutable_out() = buffer({reach(c.batch, c.m, c.n, c.out)}, resultType);
    for (const plan::Buffer *operand : {&contract.lhs(), &contract.rhs(), &contract.out()}) randomize(*operand);
    if (c.bias) *contract.mutable_bias() = buffer({c.n});
    for (int64_t size : c.batch) contract.add_batch(size);
    contract.set_m(c.m), contract.set_n(c.n), contract.set_k(c.k);
    for (int64_t s : c.lhs) contract.add_lhs_strides(s);
    for (int64_t s : c.rhs) contract.add_rhs_strides(s);
    for (int64_t s : c.out) contract.add_out_strides(s);
    contract.set_accumulate(c.accumulate);
    std::vector<float> lhs = copyOf(contract.lhs()), rhs = copyOf(contract.rhs()), expected = copyOf(contract.out());
    std::vector<float> bias = c.bias ? copyOf(contract.bias()) : std::vector<float>(c.n);
    int64_t batches = 1;
    for (int64_t size : c.batch) batches *= size;
    size_t rank = c.batch.size();
    for (int64_t b = 0; b < batches; ++b) {
      int64_t l = 0, r = 0, o = 0, rest = b;
      for (size_t d = rank; d-- > 0; rest /= c.batch[d])
        l += rest % c.batch[d] * c.lhs[d], r += rest % c.batch[d] * c.rhs[d], o += rest % c.batch[d] * c.out[d];
      for (int64_t i = 0; i < c.m; ++i)
        for (int64_t j = 0; j < c.n; ++j) {
          double sum = bias[j];
          for (int64_t x = 0; x < c.k; ++x)
            sum += static_cast<double>(lhs[l + i * c.lhs[rank] + x * c.lhs[rank + 1]]) *
                   rhs[r + x * c.rhs[rank] + j * c.rhs[rank + 1]];
          float &to = expected[o + i * c.out[rank] + j * c.out[rank + 1]];
          to = static_cast<float>(c.accumulate ? to + sum : sum);
        }
    }
    expectRuns(command);
    std::vector<float> got = copyOf(contract.out());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], roundingOf(resultType, expected[i])) << "element " << i;
  }
}

// GELU by its formula, its derivative by differences.
double geluByTanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

TEST_F(Commands, ContractFinishesWithBiasGeluAndSums) {
  EXPECT_NEAR(geluByTanh(1), 0.841191990608, 1e-12); // torch.nn.functional.gelu(approximate='tanh')
  const int64_t m = 6, n = 8, k = 5;
  for (plan::DType type : {plan::F32, plan::BF16, plan::F16})
    for (auto activation : {plan::Contract::NONE, plan::Contract::GELU, plan::Contract::GELU_GRADIENT})
      for (bool sums : {false, true}) {
        SCOPED_TRACE(testing::Message() << name(type) << ", activation " << activation << ", sums " << sums);
        reset();
        plan::Command command;
        plan::Contract &c = *command.mutable_contract();
        *c.mutable_lhs() = buffer({m, k}, type), *c.mutable_rhs() = buffer({k, n}, type);
        *c.mutable_out() = buffer({m, n}, type);
        c.set_m(m), c.set_n(n), c.set_k(k), c.set_activation(activation);
        for (int64_t stride : {k, int64_t(1)}) c.add_lhs_strides(stride);
        for (int64_t stride : {n, int64_t(1)}) c.add_rhs_strides(stride), c.add_out_strides(stride);
        bool isGradient = activation == plan::Contract::GELU_GRADIENT;
        if (!isGradient) *c.mutable_bias() = buffer({n}, type);
        if (activation != plan::Contract::NONE) *c.mutable_pre_activation() = buffer({m, n}, type);
        if (sums) *c.mutable_lhs_sum() = buffer({m}), *c.mutable_rhs_sum() = buffer({n});
        for (const plan::Buffer *operand : {&c.lhs(), &c.rhs(), &c.bias(), &c.pre_activation()})
          if (operand->shape_size()) randomize(*operand);
        std::vector<float> lhs = copyOf(c.lhs()), rhs = copyOf(c.rhs()),
                           bias = isGradient ? std::vector<float>(n) : copyOf(c.bias()), kept;
        if (activation != plan::Contract::NONE) kept = copyOf(c.pre_activation());
        expectRuns(command);
        std::vector<float> got = copyOf(c.out()), pre = kept;
        if (activation == plan::Contract::GELU) pre = copyOf(c.pre_activation());
        for (int64_t i = 0; i < m * n; ++i) {
          double sum = bias[i % n];
          for (int64_t x = 0; x < k; ++x) sum += double(lhs[i / n * k + x]) * rhs[x * n + i % n];
          double expected = activation == plan::Contract::GELU ? geluByTanh(sum) : sum;
          if (isGradient) expected *= (geluByTanh(kept[i] + 1e-5) - geluByTanh(kept[i] - 1e-5)) / 2e-5;
          // The product is rounded, and the sum with the bias: two roundings of numbers up to |sum|.
          double bound = 1e-5 + 3 * (roundingOf(type, std::abs(sum) + 1) - 1e-5);
          EXPECT_NEAR(got[i], expected, bound) << "element " << i;
          if (activation == plan::Contract::GELU) EXPECT_NEAR(pre[i], sum, bound) << "element " << i;
        }
        if (!sums) continue;
        std::vector<float> rows = copyOf(c.lhs_sum()), columns = copyOf(c.rhs_sum());
        for (int64_t i = 0; i < m; ++i)
          EXPECT_NEAR(rows[i], std::accumulate(lhs.begin() + i * k, lhs.begin() + (i + 1) * k, 0.0), 1e-5);
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t x = 0; x < k; ++x) sum += rhs[x * n + j];
          EXPECT_NEAR(columns[j], sum, 1e-5);
        }
      }
}

struct ConvolutionCase {
  std::vector<int64_t> input, weight, strides, low, high, dilations;
  int64_t groups = 1;
};

TEST_F(Commands, ConvolutionAndItsGradients) {
  const std::vector<ConvolutionCase> cases = {
      {{2, 3, 8, 9}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {{2, 4, 8, 8}, {6, 2, 3, 3}, {2, 2}, {0, 1}, {1, 0}, {1, 1}, 2}, // groups, asymmetric pads
      {{1, 4, 9, 9}, {4, 1, 3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}, 4}, // depthwise, dilated
      {{2, 16, 6, 6}, {32, 16, 1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
      {{2, 3, 10}, {5, 3, 4}, {2}, {1}, {2}, {1}},
      {{1, 2, 4, 5, 6}, {3, 2, 2, 2, 3}, {1, 1, 2}, {0, 1, 1}, {1, 0, 1}, {1, 1, 1}},
  };
  const plan::DType types[] = {plan::F32, plan::BF16, plan::F16, plan::F64};
  for (size_t index = 0; index < cases.size() * std::size(types); ++index)
    for (auto pass : {plan::Convolution::FORWARD, plan::Convolution::GRAD_INPUT, plan::Convolution::GRAD_WEIGHT}) {
      plan::DType type = types[index / cases.size()];
      SCOPED_TRACE(testing::Message() << name(type) << ", case " << index % cases.size() << " pass " << pass);
      const ConvolutionCase &c = cases[index % cases.size()];
      reset();
      plan::Command command;
      plan::Convolution &conv = *command.mutable_convolution();
      size_t spatial = c.strides.size();
      std::vector<int64_t> outShape = {c.input[0], c.weight[0]};
      for (size_t d = 0; d < spatial; ++d) {
        outShape.push_back(
            (c.input[2 + d] + c.low[d] + c.high[d] - (c.weight[2 + d] - 1) * c.dilations[d] - 1) / c.strides[d] + 1);
        conv.add_strides(c.strides[d]), conv.add_pads_begin(c.low[d]), conv.add_pads_end(c.high[d]),
            conv.add_dilations(c.dilations[d]);
      }
      conv.set_pass(pass), conv.set_groups(c.groups);
      // The gradient of 16-bit weights is the sum before it is rounded.
      plan::DType weightType = pass == plan::Convolution::GRAD_WEIGHT && type != plan::F64 ? plan::F32 : type;
      *conv.mutable_input() = buffer(c.input, type), *conv.mutable_weight() = buffer(c.weight, weightType),
      *conv.mutable_output() = buffer(outShape, type);
      for (const plan::Buffer *operand : {&conv.input(), &conv.weight(), &conv.output()}) randomize(*operand);
      std::vector<float> x = copyOf(conv.input()), w = copyOf(conv.weight()), y = copyOf(conv.output());
      std::vector<double> gx(x.size()), gw(w.size()), gy(y.size());
      auto lift = [&](std::vector<int64_t> shape, int64_t fill) { // spatial dimensions padded to three
        shape.insert(shape.begin() + 2, 3 - spatial, fill);
        return shape;
      };
      auto lift1 = [&](std::vector<int64_t> v, int64_t fill) {
        v.insert(v.begin(), 3 - spatial, fill);
        return v;
      };
      auto X = lift(c.input, 1), W = lift(c.weight, 1), Y = lift(outShape, 1);
      auto S = lift1(c.strides, 1), L = lift1(c.low, 0), D = lift1(c.dilations, 1);
      int64_t perGroup = W[0] / c.groups;
      for (int64_t n = 0; n < Y[0]; ++n)
        for (int64_t o = 0; o < Y[1]; ++o)
          for (int64_t a = 0; a < Y[2]; ++a)
            for (int64_t b = 0; b < Y[3]; ++b)
              for (int64_t e = 0; e < Y[4]; ++e)
                for (int64_t i = 0; i < W[1]; ++i)
                  for (int64_t p = 0; p < W[2]; ++p)
                    for (int64_t q = 0; q < W[3]; ++q)
                      for (int64_t r = 0; r < W[4]; ++r) {
                        int64_t z = a * S[0] - L[0] + p * D[0], h = b * S[1] - L[1] + q * D[1],
                                v = e * S[2] - L[2] + r * D[2];
                        if (z < 0 || z >= X[2] || h < 0 || h >= X[3] || v < 0 || v >= X[4]) continue;
                        int64_t xi = (((n * X[1] + o / perGroup * W[1] + i) * X[2] + z) * X[3] + h) * X[4] + v;
                        int64_t wi = (((o * W[1] + i) * W[2] + p) * W[3] + q) * W[4] + r;
                        int64_t yi = (((n * Y[1] + o) * Y[2] + a) * Y[3] + b) * Y[4] + e;
                        gy[yi] += static_cast<double>(x[xi]) * w[wi];
                        gx[xi] += static_cast<double>(y[yi]) * w[wi];
                        gw[wi] += static_cast<double>(y[yi]) * x[xi];
                      }
      expectRuns(command);
      const plan::Buffer &written = pass == plan::Convolution::FORWARD      ? conv.output()
                                    : pass == plan::Convolution::GRAD_INPUT ? conv.input()
                                                                            : conv.weight();
      const std::vector<double> &expected = pass == plan::Convolution::FORWARD      ? gy
                                            : pass == plan::Convolution::GRAD_INPUT ? gx
                                                                                    : gw;
      std::vector<float> got = copyOf(written);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], 2e-4 + roundingOf(written.dtype(), expected[i])) << "element " << i;
    }
}

TEST_F(Commands, PoolsAndTheirGradients) {
  struct Windows {
    int64_t size, stride, dilation;
    plan::DType dtype = plan::F32;
  };
  for (auto [K, S, D, dtype] : {Windows{3, 2, 1}, Windows{3, 1, 1}, Windows{2, 3, 1}, Windows{3, 2, 2},
                                Windows{3, 1, 1, plan::BF16}, Windows{3, 2, 1, plan::F16}})
    for (int kind = plan::Pool::MAX; kind <= plan::Pool::AVERAGE_INCLUDE_PAD_GRAD; ++kind) {
      SCOPED_TRACE(testing::Message() << "kind " << kind << ", windows of " << K << " by " << S << ", dilation " << D
                                      << ", " << name(dtype));
      reset();
      const int64_t H = 7, W = 9, low = 1, high = 1, extent = (K - 1) * D + 1, OH = (H + low + high - extent) / S + 1,
                    OW = (W + low + high - extent) / S + 1;
      plan::Command command;
      plan::Pool &pool = *command.mutable_pool();
      pool.set_kind(static_cast<plan::Pool::Kind>(kind));
      *pool.mutable_input() = buffer({2, 3, H, W}, dtype), *pool.mutable_output() = buffer({2, 3, OH, OW}, dtype);
      bool gradient = kind >= plan::Pool::MAX_GRAD, withPads = kind % 3 == 2, max = kind % 3 == 0;
      if (gradient) *pool.mutable_grad_input() = buffer({2, 3, H, W}, dtype);
      randomize(pool.input()), randomize(pool.output());
      for (int d = 0; d < 2; ++d)
        pool.add_kernel(K), pool.add_strides(S), pool.add_pads_begin(low), pool.add_pads_end(high),
            pool.add_dilations(D);
      std::vector<float> x = copyOf(pool.input()), y = copyOf(pool.output());
      std::vector<double> forward(y.size()), backward(x.size());
      for (int64_t p = 0; p < 6; ++p)
        for (int64_t a = 0; a < OH; ++a)
          for (int64_t b = 0; b < OW; ++b) {
            double best = -INFINITY, sum = 0;
            int64_t where = -1, inside = 0;
            std::vector<int64_t> window;
            for (int64_t i = a * S - low; i < a * S - low + extent; i += D)
              for (int64_t j = b * S - low; j < b * S - low + extent; j += D) {
                if (i < 0 || j < 0 || i >= H || j >= W) {
                  inside += withPads;
                  continue;
                }
                ++inside;
                int64_t at = (p * H + i) * W + j;
                window.push_back(at);
                sum += x[at];
                if (x[at] > best) best = x[at], where = at;
              }
            int64_t o = (p * OH + a) * OW + b;
            forward[o] = max ? best : sum / static_cast<double>(inside);
            if (max)
              backward[where] += y[o];
            else
              for (int64_t at : window) backward[at] += y[o] / static_cast<double>(inside);
          }
      expectRuns(command);
      std::vector<float> got = copyOf(gradient ? pool.grad_input() : pool.output());
      const std::vector<double> &expected = gradient ? backward : forward;
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], roundingOf(dtype, expected[i])) << "element " << i;
    }
}

TEST_F(Commands, GatherAndScatterAddOfTheLocalRows) {
  // 10 rows over tp=2: this device, 1, has rows 5..9.
  for (int64_t inner : {1, 3, 128}) {
    reset();
    plan::Command gather, scatter;
    plan::Gather &g = *gather.mutable_gather();
    *g.mutable_table() = buffer({2, 5, inner}), *g.mutable_indices() = buffer({2, 3}, plan::I64),
    *g.mutable_out() = buffer({2, 2, 3, inner});
    const int64_t indices[] = {0, 5, 9, -1, -10, 5};
    std::copy(std::begin(indices), std::end(indices), at<int64_t>(g.indices()));
    g.set_outer(2), g.set_rows(5), g.set_inner(inner), g.set_global_rows(10);
    g.mutable_start()->add_terms()->add_axes("tp");
    g.mutable_start()->mutable_terms(0)->set_stride(5);
    expectRuns(gather);
    for (int64_t o = 0; o < 2; ++o)
      for (int64_t i = 0; i < 6; ++i)
        for (int64_t x = 0; x < inner; ++x) {
          int64_t row = (indices[i] + 10) % 10 - 5;
          EXPECT_EQ(at(g.out())[(o * 6 + i) * inner + x], row < 0 ? 0.f : at(g.table())[(o * 5 + row) * inner + x]);
        }
    plan::ScatterAdd &s = *scatter.mutable_scatter_add();
    *s.mutable_indices() = g.indices(), *s.mutable_updates() = buffer({2, 2, 3, inner}),
    *s.mutable_out() = buffer({2, 5, inner});
    s.set_outer(2), s.set_rows(5), s.set_inner(inner), s.set_global_rows(10);
    *s.mutable_start() = g.start();
    std::vector<float> updates = copyOf(s.updates()), expected(2 * 5 * inner);
    for (int64_t o = 0; o < 2; ++o)
      for (int64_t i = 0; i < 6; ++i)
        for (int64_t x = 0; x < inner; ++x)
          if (int64_t row = (indices[i] + 10) % 10 - 5; row >= 0)
            expected[(o * 5 + row) * inner + x] += updates[(o * 6 + i) * inner + x];
    expectRuns(scatter);
    EXPECT_EQ(copyOf(s.out()), expected);
    at<int64_t>(g.indices())[4] = 10;
    Status status = run(gather);
    EXPECT_EQ(status.exitStatus(), 4);
    EXPECT_EQ(status.message(), "index 10 (element 4) is outside of the 10 rows");
    EXPECT_EQ(run(scatter).exitStatus(), 4);
  }
}

// Six groups over tp=2: this device, 1, has groups 3 to 5. Rows at strides, of groups in no order; group 4 has none.
TEST_F(Commands, GroupedContractOfTheLocalGroups) {
  const int64_t outer = 7, inner = 2, k = 5, n = 3, groups = 3;
  const int64_t groupOf[] = {3, 0, 5, -1, 5, 1, 3, 3, 5, 2, -3, 5, 0, 3};
  const std::pair<plan::DType, plan::DType> types[] = {{plan::F32, plan::F32},
                                                       {plan::F64, plan::F64},
                                                       {plan::BF16, plan::BF16},
                                                       {plan::F16, plan::F16},
                                                       {plan::BF16, plan::F32}};
  for (auto [type, resultType] : types)
    for (bool sums : {false, true})
      for (bool transposed : {false, true}) {
        if (sums && transposed) continue;
        SCOPED_TRACE(testing::Message() << name(type) << " to " << name(resultType) << ", sums " << sums
                                        << ", transposed " << transposed);
        reset();
        plan::Command command;
        plan::GroupedContract &c = *command.mutable_grouped_contract();
        c.add_rows(outer), c.add_rows(inner);
        c.set_k(k), c.set_n(n), c.set_groups(groups), c.set_global_groups(2 * groups);
        c.set_sums_rows(sums), c.set_transposed(transposed);
        c.mutable_start()->add_terms()->add_axes("tp");
        c.mutable_start()->mutable_terms(0)->set_stride(groups);
        *c.mutable_group_of_row() = buffer({outer, inner}, plan::I64);
        std::copy(std::begin(groupOf), std::end(groupOf), at<int64_t>(c.group_of_row()));
        *c.mutable_lhs() = buffer({outer, k}, type); // each row for both entries of `inner`
        c.add_lhs_strides(k), c.add_lhs_strides(0);
        *c.mutable_rhs() = sums ? buffer({inner, outer, n}, type) : buffer({groups, k, n}, type);
        if (sums) c.add_rhs_strides(n), c.add_rhs_strides(outer * n);
        *c.mutable_out() = sums ? buffer({groups, k, n}, resultType) : buffer({outer, inner, n}, resultType);
        for (const plan::Buffer *operand : {&c.lhs(), &c.rhs(), &c.out()}) randomize(*operand);
        std::vector<float> lhs = copyOf(c.lhs()), rhs = copyOf(c.rhs());
        std::vector<double> expected(size_t(elementCount(c.out().shape())));
        for (int64_t row = 0; row < outer * inner; ++row) {
          const int64_t group = (groupOf[row] + 6) % 6 - groups;
          if (group < 0) continue;
          for (int64_t x = 0; x < k; ++x)
            for (int64_t j = 0; j < n; ++j)
              if (sums)
                expected[(group * k + x) * n + j] +=
                    double(lhs[row / inner * k + x]) * rhs[(row % inner * outer + row / inner) * n + j];
              else
                expected[row * n + j] +=
                    double(lhs[row / inner * k + x]) * rhs[group * k * n + (transposed ? j * k + x : x * n + j)];
        }
        expectRuns(command);
        std::vector<float> got = copyOf(c.out());
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], expected[i], roundingOf(resultType, expected[i])) << "element " << i;
        at<int64_t>(c.group_of_row())[2] = 6;
        EXPECT_EQ(run(command).message(), "index 6 (element 2) is outside of the 6 rows");
      }
}

// What does not fit is refused before it runs.
TEST_F(Commands, GroupedContractIsChecked) {
  plan::Command command;
  plan::GroupedContract &c = *command.mutable_grouped_contract();
  *c.mutable_lhs() = buffer({4, 5}), *c.mutable_rhs() = buffer({2, 5, 3}), *c.mutable_out() = buffer({4, 3});
  *c.mutable_group_of_row() = buffer({4}, plan::I32);
  std::fill_n(at<int32_t>(c.group_of_row()), 4, 1);
  c.add_rows(4), c.set_k(5), c.set_n(3), c.set_groups(2), c.set_global_groups(2), c.add_lhs_strides(5);
  expectRuns(command);
  auto refused = [&](auto change) {
    plan::Command changed = command;
    change(*changed.mutable_grouped_contract());
    return run(changed).message();
  };
  using Product = plan::GroupedContract;
  EXPECT_EQ(refused([](Product &p) { p.mutable_group_of_row()->set_dtype(plan::F32); }), "groups must be i32 or i64");
  EXPECT_EQ(refused([](Product &p) { p.set_groups(3); }), "f32[2x5x3] at 128 is not [3, 5, 3]");
  EXPECT_EQ(refused([](Product &p) { p.mutable_start()->set_base(1); }), "groups from 1 to 3 of 2");
  EXPECT_EQ(refused([](Product &p) { p.mutable_start()->set_base(4); }), "groups from 4 to 6 of 2");
  EXPECT_EQ(refused([](Product &p) { p.set_lhs_strides(0, 6); }),
            "lhs reaches elements 0 to 22 of f32[4x5] at 0, which has 20");
  EXPECT_EQ(refused([](Product &p) { p.set_rows(0, 3); }), "i32[4] at 320 for 3 rows");
  EXPECT_EQ(refused([](Product &p) { p.clear_lhs_strides(); }),
            "one stride a row dimension is needed, and at most 16 dimensions");
  EXPECT_EQ(refused([](Product &p) { p.mutable_rhs()->set_dtype(plan::BF16); }),
            "no grouped product of f32[4x5] at 0 and bf16[2x5x3] at 128 into f32[4x3] at 256");
  EXPECT_EQ(refused([](Product &p) { p.set_sums_rows(true), p.set_transposed(true), p.add_rhs_strides(3); }),
            "a sum over rows has no matrices to transpose");
}

// 1000 ones in 16 bits would stay 256 in bf16, whose next number is 258.
TEST_F(Commands, SixteenBitsAreSummedInSingle) {
  for (plan::DType dtype : {plan::BF16, plan::F16}) {
    SCOPED_TRACE(name(dtype));
    plan::Command scatter, sum;
    plan::ScatterAdd &s = *scatter.mutable_scatter_add();
    *s.mutable_indices() = buffer({1000}, plan::I64), *s.mutable_updates() = buffer({1000, 3}, dtype),
    *s.mutable_out() = buffer({2, 3}, dtype);
    s.set_outer(1), s.set_rows(2), s.set_inner(3), s.set_global_rows(2);
    std::fill_n(at<int64_t>(s.indices()), 1000, 1);
    for (int64_t i = 0; i < 3000; ++i) storeFloat(dtype, 1, at<std::byte>(s.updates()) + 2 * i);
    expectRuns(scatter);
    EXPECT_EQ(copyOf(s.out()), (std::vector<float>{0, 0, 0, 1000, 1000, 1000}));
    plan::CumSum &c = *sum.mutable_cumsum();
    *c.mutable_input() = s.updates(), *c.mutable_output() = buffer({1000, 3}, dtype);
    c.set_outer(1), c.set_length(1000), c.set_inner(3);
    expectRuns(sum);
    EXPECT_EQ(copyOf(c.output()).back(), 1000);
  }
}

TEST_F(Commands, StridedCopies) {
  struct Case {
    std::vector<int64_t> sizes, source, target;
  };
  const std::vector<Case> cases = {{{6, 5}, {1, 6}, {5, 1}},
                                   {{130, 70}, {1, 130}, {70, 1}},
                                   {{2, 3, 4, 5}, {60, 5, 15, 1}, {60, 20, 5, 1}},
                                   {{2, 64, 4, 16}, {4096, 16, 1024, 1}, {4096, 64, 16, 1}},
                                   {{3, 4, 5}, {0, 5, 1}, {20, 5, 1}}, // broadcast
                                   {{3, 4}, {20, 2}, {4, 1}},          // every other
                                   {{}, {}, {}},
                                   {{0, 3}, {3, 1}, {3, 1}},
                                   {{1, 300000}, {7, 1}, {9, 1}},
                                   {{2, 3, 128, 7}, {2688, 7, 21, 1}, {2688, 896, 1, 128}}};
  for (size_t index = 0; index < cases.size(); ++index)
    for (auto [dtype, bytes] :
         {std::pair{plan::F32, 4}, std::pair{plan::I64, 8}, std::pair{plan::BOOL, 1}, std::pair{plan::BF16, 2}}) {
      SCOPED_TRACE(testing::Message() << "case " << index << " of " << bytes);
      const Case &c = cases[index];
      int64_t from = 1, to = 1, count = 1;
      for (size_t d = 0; d < c.sizes.size(); ++d)
        from += (c.sizes[d] - 1) * c.source[d], to += (c.sizes[d] - 1) * c.target[d], count *= c.sizes[d];
      if (count == 0) from = to = 1;
      reset();
      plan::Command command;
      plan::Copy &copy = *command.mutable_copy();
      *copy.mutable_source() = buffer({from + 3}, dtype), *copy.mutable_target() = buffer({to + 2}, dtype);
      for (size_t d = 0; d < c.sizes.size(); ++d)
        copy.add_sizes(c.sizes[d]), copy.add_source_strides(c.source[d]), copy.add_target_strides(c.target[d]);
      copy.mutable_source_offset()->add_terms()->add_axes("tp");
      copy.mutable_source_offset()->mutable_terms(0)->set_stride(3);
      copy.mutable_target_offset()->set_base(2);
      std::vector<std::byte> expected(at<std::byte>(copy.target()),
                                      at<std::byte>(copy.target()) + byteSize(copy.target()));
      for (int64_t i = 0; i < count; ++i) {
        int64_t rest = i, f = 3, t = 2;
        for (size_t d = c.sizes.size(); d-- > 0; rest /= c.sizes[d])
          f += rest % c.sizes[d] * c.source[d], t += rest % c.sizes[d] * c.target[d];
        std::memcpy(expected.data() + t * bytes, at<std::byte>(copy.source()) + f * bytes, bytes);
      }
      expectRuns(command);
      EXPECT_EQ(std::memcmp(at<std::byte>(copy.target()), expected.data(), expected.size()), 0);
    }
}

TEST_F(Commands, FillCumSumCheckFinite) {
  plan::Command fill, sum, check;
  *fill.mutable_fill()->mutable_target() = buffer({1000});
  float value = 1.5f;
  fill.mutable_fill()->set_value(std::string(reinterpret_cast<char *>(&value), 4));
  expectRuns(fill);
  EXPECT_EQ(copyOf(fill.fill().target()), std::vector<float>(1000, 1.5f));
  plan::CumSum &c = *sum.mutable_cumsum();
  *c.mutable_input() = fill.fill().target(), *c.mutable_output() = buffer({10, 20, 5});
  c.set_outer(10), c.set_length(20), c.set_inner(5), c.set_exclusive(true), c.set_reverse(true);
  expectRuns(sum);
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(at(c.output())[i], 1.5f * static_cast<float>(19 - i / 5 % 20));
  *check.mutable_check_finite()->mutable_buffer() = c.output();
  check.mutable_check_finite()->set_what("y");
  expectRuns(check);
  for (float bad : {INFINITY, -INFINITY, NAN}) {
    at(c.output())[777] = bad;
    EXPECT_EQ(run(check).exitStatus(), 4);
  }
}

} // namespace
} // namespace cleave::runtime::test
