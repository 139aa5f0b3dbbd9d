// From a partitioned training step, written by hand, to a plan that two devices run: numbers against plain loops over
// the unsplit step.
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/kernels/kernels.h"
#include "compiler/driver/pass_list.h"
#include "dialects/dist/Dist.h"
#include "dialects/onnx/Onnx.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "runtime/engine/comm/local.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/plan/verify/verify.h"
#include <cmath>
#include <gtest/gtest.h>

namespace cleave::codegen {
namespace {

// relu(x w1) w2, loss = sum of squares, plain gradient descent. The batch of 8 lies over dp; w1's state is split
// (ZeRO-1: reduce-scatter, own part, all-gather), w2's gradient is all-reduced.
constexpr const char *step = R"(
module attributes {place.routines = [{program = 0 : i64, name = "step", fragments = [@final],
                                       microbatches = array<i64: 0>, slots = array<i64: 0>}]} {
onnx.param @w1 : tensor<8x16xf32> "parameter" {trainable = true, fill = 0.0}
onnx.param @w2 : tensor<16x4xf32> "parameter" {trainable = true, fill = 0.0}
onnx.param @m1 : tensor<8x16xf32> "optimizer_state" {trainable = false, fill = 0.0, sharding = #dist.sharding<"[{dp},{}]">}
func.func @final(%x: tensor<4x8xf32> {onnx.name = "x", dist.layout = #dist.sharding<"[{dp},{}]">},
                 %lr: tensor<f32> {onnx.host = "learning_rate"}) -> (tensor<f32> {onnx.name = "loss"}) {
  %w1 = onnx.read @w1 : tensor<8x16xf32>
  %w2 = onnx.read @w2 : tensor<16x4xf32>
  %m1 = onnx.read @m1 : tensor<4x16xf32>
  %h = onnx.Contract %x, %w1 {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %r = onnx.Relu %h {place.at = #place.at<phase = forward>} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %y = onnx.Contract %r, %w2 {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<4x16xf32>, tensor<16x4xf32>) -> tensor<4x4xf32>
  %yy = onnx.Mul %y, %y {place.at = #place.at<phase = forward>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %l = onnx.ReduceSum %yy {axes = array<i64: 0, 1>, place.at = #place.at<phase = forward>} : (tensor<4x4xf32>) -> tensor<f32>
  %loss = dist.all_reduce %l {axes = ["dp"], reduce = #dist.reduction<sum>, place.at = #place.at<phase = forward>} : (tensor<f32>) -> tensor<f32>
  %dy = onnx.Add %y, %y {place.at = #place.at<phase = backward>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %dw2 = onnx.Contract %r, %dy {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 2>, result_indices = array<i64: 1, 2>, place.at = #place.at<phase = backward>} : (tensor<4x16xf32>, tensor<4x4xf32>) -> tensor<16x4xf32>
  %g2 = dist.all_reduce %dw2 {axes = ["dp"], reduce = #dist.reduction<sum>, place.at = #place.at<phase = backward>} : (tensor<16x4xf32>) -> tensor<16x4xf32>
  %dr = onnx.Contract %dy, %w2 {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = backward>} : (tensor<4x4xf32>, tensor<16x4xf32>) -> tensor<4x16xf32>
  %zero = onnx.Constant dense<0.0> : tensor<4x16xf32>
  %on = onnx.Greater %h, %zero {place.at = #place.at<phase = backward>} : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xi1>
  %dh = onnx.Where %on, %dr, %zero {place.at = #place.at<phase = backward>} : (tensor<4x16xi1>, tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  %dw1 = onnx.Contract %x, %dh {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 2>, result_indices = array<i64: 1, 2>, place.at = #place.at<phase = backward>} : (tensor<4x8xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %g1 = dist.reduce_scatter %dw1 {axes = ["dp"], reduce = #dist.reduction<sum>, dim = 0 : i64, place.at = #place.at<phase = backward>} : (tensor<8x16xf32>) -> tensor<4x16xf32>
  %half = onnx.Constant dense<0.5> : tensor<4x16xf32>
  %m1h = onnx.Mul %m1, %half {place.at = #place.at<phase = update>} : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  %m1n = onnx.Add %m1h, %g1 {place.at = #place.at<phase = update>} : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  %lr1 = onnx.Broadcast %lr {shape = array<i64: 4, 16>, dims = array<i64>, place.at = #place.at<phase = update>} : (tensor<f32>) -> tensor<4x16xf32>
  %d1 = onnx.Mul %lr1, %m1n {place.at = #place.at<phase = update>} : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  %own = dist.own_part %w1 {axes = ["dp"], dim = 0 : i64, place.at = #place.at<phase = update>} : (tensor<8x16xf32>) -> tensor<4x16xf32>
  %n1 = onnx.Sub %own, %d1 {place.at = #place.at<phase = update>} : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  %w1n = dist.all_gather %n1 {axes = ["dp"], dim = 0 : i64, place.at = #place.at<phase = update>} : (tensor<4x16xf32>) -> tensor<8x16xf32>
  %lr2 = onnx.Broadcast %lr {shape = array<i64: 16, 4>, dims = array<i64>, place.at = #place.at<phase = update>} : (tensor<f32>) -> tensor<16x4xf32>
  %d2 = onnx.Mul %lr2, %g2 {place.at = #place.at<phase = update>} : (tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<16x4xf32>
  %w2n = onnx.Sub %w2, %d2 {place.at = #place.at<phase = update>} : (tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<16x4xf32>
  onnx.write @m1, %m1n : tensor<4x16xf32>
  onnx.write @w1, %w1n : tensor<8x16xf32>
  onnx.write @w2, %w2n : tensor<16x4xf32>
  return %loss : tensor<f32>
}
}
)";

// The same step, unsplit.
struct Unsplit {
  std::vector<double> w1, w2, m1 = std::vector<double>(8 * 16, 0);

  double train(const std::vector<float> &x, double lr) {
    std::vector<double> h(8 * 16, 0), y(8 * 4, 0), g1(8 * 16, 0), g2(16 * 4, 0);
    double loss = 0;
    for (int b = 0; b < 8; ++b) {
      for (int j = 0; j < 16; ++j)
        for (int i = 0; i < 8; ++i) h[b * 16 + j] += x[b * 8 + i] * w1[i * 16 + j];
      for (int k = 0; k < 4; ++k)
        for (int j = 0; j < 16; ++j) y[b * 4 + k] += std::max(h[b * 16 + j], 0.0) * w2[j * 4 + k];
      for (int k = 0; k < 4; ++k) loss += y[b * 4 + k] * y[b * 4 + k];
      for (int j = 0; j < 16; ++j) {
        double dh = 0;
        for (int k = 0; k < 4; ++k) {
          g2[j * 4 + k] += std::max(h[b * 16 + j], 0.0) * 2 * y[b * 4 + k];
          dh += 2 * y[b * 4 + k] * w2[j * 4 + k];
        }
        if (h[b * 16 + j] > 0)
          for (int i = 0; i < 8; ++i) g1[i * 16 + j] += x[b * 8 + i] * dh;
      }
    }
    for (int i = 0; i < 8 * 16; ++i) m1[i] = 0.5 * m1[i] + g1[i], w1[i] -= lr * m1[i];
    for (int i = 0; i < 16 * 4; ++i) w2[i] -= lr * g2[i];
    return loss;
  }
};

TEST(Generate, TwoDevicesTrainAsOne) {
  mlir::DialectRegistry registry;
  registry.insert<onnx::OnnxDialect, dist::DistDialect, plan::PlanDialect, mlir::func::FuncDialect>();
  registerKernelDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(step, &context);
  ASSERT_TRUE(module);
  dist::Mesh mesh{{{"dp", 2}}};
  MemoryReport memory;
  auto generated = cleave::generate(*module, mesh, {.threads = 1, .memory = &memory});
  ASSERT_TRUE(mlir::succeeded(generated));
  plan::Plan &plan = *generated;
  plan.mutable_training()->set_global_batch(8);
  plan.mutable_training()->set_microbatches(1);
  plan.mutable_training()->mutable_lr()->set_kind("constant");
  plan.mutable_training()->mutable_lr()->set_peak(0.002);

  Status verified = runtime::verifyPlan(plan);
  ASSERT_TRUE(verified.isOk()) << verified.message();
  EXPECT_EQ(memory.total(), plan.programs(0).arena_bytes());
  EXPECT_EQ(memory.parameters, 8 * 16 * 4 + 16 * 4 * 4 + 64);
  EXPECT_EQ(memory.optimizer, 4 * 16 * 4);
  // The updates write the parameters themselves: the only copy is the own part of w1.
  int copies = 0, collectives = 0;
  for (const plan::Command &command : plan.programs(0).fragments(0).commands()) {
    copies += command.has_copy();
    collectives += command.has_collective();
    EXPECT_EQ(command.stream() != 0, command.has_collective());
  }
  EXPECT_LE(copies, 1);
  EXPECT_EQ(collectives, 4);

  auto executor = runtime::Executor::create(plan, std::make_unique<runtime::LocalFabric>(mesh), {});
  ASSERT_TRUE(executor.isOk()) << executor.status().message();
  Unsplit unsplit;
  for (int i = 0; i < 8 * 16; ++i) unsplit.w1.push_back(float(std::sin(i * 0.7) * 0.3));
  for (int i = 0; i < 16 * 4; ++i) unsplit.w2.push_back(float(std::cos(i * 1.3) * 0.3));
  for (int64_t device : (*executor)->devices())
    for (const plan::Parameter &parameter : plan.parameters()) {
      auto shard = (*executor)->shard(device, parameter);
      auto *values = reinterpret_cast<float *>(shard.data());
      for (size_t i = 0; i < shard.size() / 4; ++i)
        values[i] = parameter.name() == "w1" ? unsplit.w1[i] : parameter.name() == "w2" ? unsplit.w2[i] : 0;
    }
  for (int64_t iteration = 0; iteration < 5; ++iteration) {
    std::vector<float> x(8 * 8);
    for (int i = 0; i < 64; ++i) x[i] = float(std::sin(i * 0.37 + double(iteration)));
    const std::byte *input = reinterpret_cast<const std::byte *>(x.data());
    auto outputs = (*executor)->run("step", std::span(&input, 1), iteration);
    ASSERT_TRUE(outputs.isOk()) << outputs.status().message();
    EXPECT_NEAR(outputs->at("loss"), unsplit.train(x, 0.002), 1e-4) << "iteration " << iteration;
  }
  for (int64_t device : (*executor)->devices())
    for (const plan::Parameter &parameter : plan.parameters()) {
      auto *values = reinterpret_cast<const float *>((*executor)->shard(device, parameter).data());
      const auto &expected = parameter.name() == "w1" ? unsplit.w1 : parameter.name() == "w2" ? unsplit.w2 : unsplit.m1;
      int64_t start = parameter.name() == "m1" ? device * 64 : 0;
      for (int64_t i = 0; i < (parameter.name() == "w1" ? 128 : 64); ++i)
        ASSERT_NEAR(values[i], expected[start + i], 1e-5) << parameter.name() << " " << i << " on " << device;
    }
}

} // namespace
} // namespace cleave::codegen
