// Time of fused kernels on one thread, on buffers larger than they would be in cache only where the shape says so.
// `bytes` is what the kernel must read and write once; compare with the memory bandwidth of one thread.
#include "test/unit/kernels/kernel_machine.h"
#include <benchmark/benchmark.h>
#include <fmt/format.h>

namespace {
using cleave::test::HostTensor;
using cleave::test::KernelMachine;

void runLaunches(benchmark::State &state, const std::string &text, double low = -2, double high = 2) {
  KernelMachine machine(text);
  if (!machine.compile()) return state.SkipWithError("does not compile");
  std::vector<HostTensor> inputs = machine.randomInputs(1, low, high);
  struct Call {
    KernelMachine::Function function;
    int64_t extent;
    std::vector<void *> buffers;
  };
  std::vector<Call> calls;
  std::vector<std::vector<std::byte>> memory;
  llvm::DenseMap<mlir::Value, void *> where;
  int64_t bytes = 0;
  auto launches = machine.launches();
  auto function = launches.front()->getParentOfType<mlir::func::FuncOp>();
  for (auto [argument, input] : llvm::zip(function.getArguments(), inputs)) {
    where[argument] = input.data.data();
    bytes += input.data.size();
  }
  for (auto launch : launches) {
    Call call{machine.function(launch.getKernel()), static_cast<int64_t>(launch.getExtent()), {}};
    for (mlir::Value input : launch.getInputs()) call.buffers.push_back(where[input]);
    for (mlir::Value result : launch.getResults()) {
      auto type = mlir::cast<mlir::RankedTensorType>(result.getType());
      memory.emplace_back(type.getNumElements() * ((type.getElementTypeBitWidth() + 7) / 8));
      where[result] = memory.back().data();
      bytes += memory.back().size();
      call.buffers.push_back(memory.back().data());
    }
    calls.push_back(std::move(call));
  }
  for (auto _ : state)
    for (const Call &call : calls) call.function(0, call.extent, call.buffers.data(), nullptr);
  state.SetBytesProcessed(state.iterations() * bytes);
  state.SetLabel(fmt::format("{} launches", calls.size()));
}

// Replaces every @T by the tensor type, @R by that of its rows, @C by that of a row.
std::string shaped(std::string text, const std::string &leading, const std::string &row) {
  auto replace = [&](const std::string &from, const std::string &to) {
    for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  };
  std::string commas = leading + "x" + row;
  for (char &c : commas)
    if (c == 'x') c = ',';
  replace("@SHAPE", commas);
  replace("@T", "tensor<" + leading + "x" + row + "xf32>");
  replace("@I", "tensor<" + leading + "x" + row + "xi64>");
  replace("@B", "tensor<" + leading + "x" + row + "xi1>");
  replace("@RI", "tensor<" + leading + "xi64>");
  replace("@R", "tensor<" + leading + "xf32>");
  replace("@C", "tensor<" + row + "xf32>");
  return text;
}

const char *layerNorm = R"(func.func @f(%x: @T, %g: @C, %b: @C) -> @T {
  %n = onnx.Constant dense<0.001953125> : @R
  %eps = onnx.Constant dense<1.0e-5> : @R
  %0 = onnx.ReduceSum %x {axes = array<i64: 1>} : (@T) -> @R
  %1 = onnx.Mul %0, %n : (@R, @R) -> @R
  %2 = onnx.Broadcast %1 {shape = array<i64: @SHAPE>, dims = array<i64: 0>} : (@R) -> @T
  %3 = onnx.Sub %x, %2 : (@T, @T) -> @T
  %4 = onnx.Mul %3, %3 : (@T, @T) -> @T
  %5 = onnx.ReduceSum %4 {axes = array<i64: 1>} : (@T) -> @R
  %6 = onnx.Mul %5, %n : (@R, @R) -> @R
  %7 = onnx.Add %6, %eps : (@R, @R) -> @R
  %8 = onnx.Rsqrt %7 : (@R) -> @R
  %9 = onnx.Broadcast %8 {shape = array<i64: @SHAPE>, dims = array<i64: 0>} : (@R) -> @T
  %10 = onnx.Mul %3, %9 : (@T, @T) -> @T
  %gb = onnx.Broadcast %g {shape = array<i64: @SHAPE>, dims = array<i64: 1>} : (@C) -> @T
  %bb = onnx.Broadcast %b {shape = array<i64: @SHAPE>, dims = array<i64: 1>} : (@C) -> @T
  %11 = onnx.Mul %10, %gb : (@T, @T) -> @T
  %12 = onnx.Add %11, %bb : (@T, @T) -> @T
  return %12 : @T
})";
void LayerNorm(benchmark::State &state) { runLaunches(state, shaped(layerNorm, "1024", "512")); }
BENCHMARK(LayerNorm)->Unit(benchmark::kMicrosecond);

const char *softmax = R"(func.func @f(%x: @T) -> @T {
  %m = onnx.ReduceMax %x {axes = array<i64: 1>} : (@T) -> @R
  %mb = onnx.Broadcast %m {shape = array<i64: @SHAPE>, dims = array<i64: 0>} : (@R) -> @T
  %d = onnx.Sub %x, %mb : (@T, @T) -> @T
  %e = onnx.Exp %d : (@T) -> @T
  %s = onnx.ReduceSum %e {axes = array<i64: 1>} : (@T) -> @R
  %sb = onnx.Broadcast %s {shape = array<i64: @SHAPE>, dims = array<i64: 0>} : (@R) -> @T
  %p = onnx.Div %e, %sb : (@T, @T) -> @T
  return %p : @T
})";
void Softmax(benchmark::State &state) { runLaunches(state, shaped(softmax, "8192", "128")); }
BENCHMARK(Softmax)->Unit(benchmark::kMicrosecond);

const char *biasGelu = R"(func.func @f(%x: @T, %b: @C) -> @T {
  %bb = onnx.Broadcast %b {shape = array<i64: @SHAPE>, dims = array<i64: 1>} : (@C) -> @T
  %h = onnx.Constant dense<0.5> : @T
  %r = onnx.Constant dense<0.70710678118> : @T
  %one = onnx.Constant dense<1.0> : @T
  %0 = onnx.Add %x, %bb : (@T, @T) -> @T
  %1 = onnx.Mul %0, %r : (@T, @T) -> @T
  %2 = onnx.Erf %1 : (@T) -> @T
  %3 = onnx.Add %2, %one : (@T, @T) -> @T
  %4 = onnx.Mul %3, %0 : (@T, @T) -> @T
  %5 = onnx.Mul %4, %h : (@T, @T) -> @T
  return %5 : @T
})";
void BiasGelu(benchmark::State &state) { runLaunches(state, shaped(biasGelu, "1024", "2048")); }
BENCHMARK(BiasGelu)->Unit(benchmark::kMicrosecond);

// Loss of every row and the gradient of the logits.
const char *crossEntropy = R"(func.func @f(%x: @T, %t: @RI) -> (@R, @T) {
  %i = onnx.Iota {type = @I, dim = 1 : i64} : () -> @I
  %tb = onnx.Broadcast %t {shape = array<i64: @SHAPE>, dims = array<i64: 0>} : (@RI) -> @I
  %hit = onnx.Equal %i, %tb : (@I, @I) -> @B
  %m = onnx.ReduceMax %x {axes = array<i64: 1>} : (@T) -> @R
  %mb = onnx.Broadcast %m {shape = array<i64: @SHAPE>, dims = array<i64: 0>} : (@R) -> @T
  %d = onnx.Sub %x, %mb : (@T, @T) -> @T
  %e = onnx.Exp %d : (@T) -> @T
  %s = onnx.ReduceSum %e {axes = array<i64: 1>} : (@T) -> @R
  %l = onnx.Log %s : (@R) -> @R
  %z = onnx.Constant dense<0.0> : @T
  %w = onnx.Where %hit, %d, %z : (@B, @T, @T) -> @T
  %ws = onnx.ReduceSum %w {axes = array<i64: 1>} : (@T) -> @R
  %loss = onnx.Sub %l, %ws : (@R, @R) -> @R
  %sb = onnx.Broadcast %s {shape = array<i64: @SHAPE>, dims = array<i64: 0>} : (@R) -> @T
  %p = onnx.Div %e, %sb : (@T, @T) -> @T
  %oh = onnx.Cast %hit {to = f32} : (@B) -> @T
  %g = onnx.Sub %p, %oh : (@T, @T) -> @T
  return %loss, %g : @R, @T
})";
void CrossEntropy(benchmark::State &state) { runLaunches(state, shaped(crossEntropy, "1024", "50257")); }
BENCHMARK(CrossEntropy)->Unit(benchmark::kMicrosecond);

const char *columnSum = R"(func.func @f(%x: @T) -> @C {
  %0 = onnx.ReduceSum %x {axes = array<i64: 0>} : (@T) -> @C
  return %0 : @C
})";
void ColumnSum(benchmark::State &state) { runLaunches(state, shaped(columnSum, "1024", "2048")); }
BENCHMARK(ColumnSum)->Unit(benchmark::kMicrosecond);

const char *sumOfSquares = R"(func.func @f(%x: @T) -> tensor<f32> {
  %0 = onnx.Mul %x, %x : (@T, @T) -> @T
  %1 = onnx.ReduceSum %0 {axes = array<i64: 0, 1>} : (@T) -> tensor<f32>
  return %1 : tensor<f32>
})";
void SumOfSquares(benchmark::State &state) { runLaunches(state, shaped(sumOfSquares, "1024", "1024")); }
BENCHMARK(SumOfSquares)->Unit(benchmark::kMicrosecond);

const char *adamW = R"(func.func @f(%p: @C, %m: @C, %v: @C, %g: @C, %lr: tensor<f32>) -> (@C, @C, @C) {
  %b1 = onnx.Constant dense<0.9> : @C
  %c1 = onnx.Constant dense<0.1> : @C
  %b2 = onnx.Constant dense<0.99> : @C
  %c2 = onnx.Constant dense<0.01> : @C
  %eps = onnx.Constant dense<1.0e-8> : @C
  %wd = onnx.Constant dense<0.1> : tensor<f32>
  %one = onnx.Constant dense<1.0> : tensor<f32>
  %lw = onnx.Mul %lr, %wd : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %lk = onnx.Sub %one, %lw : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %k = onnx.Broadcast %lk {shape = array<i64: 1048576>, dims = array<i64>} : (tensor<f32>) -> @C
  %l = onnx.Broadcast %lr {shape = array<i64: 1048576>, dims = array<i64>} : (tensor<f32>) -> @C
  %m0 = onnx.Mul %m, %b1 : (@C, @C) -> @C
  %g0 = onnx.Mul %g, %c1 : (@C, @C) -> @C
  %m1 = onnx.Add %m0, %g0 : (@C, @C) -> @C
  %g2 = onnx.Mul %g, %g : (@C, @C) -> @C
  %v0 = onnx.Mul %v, %b2 : (@C, @C) -> @C
  %g3 = onnx.Mul %g2, %c2 : (@C, @C) -> @C
  %v1 = onnx.Add %v0, %g3 : (@C, @C) -> @C
  %q = onnx.Sqrt %v1 : (@C) -> @C
  %d = onnx.Add %q, %eps : (@C, @C) -> @C
  %u = onnx.Div %m1, %d : (@C, @C) -> @C
  %w = onnx.Mul %u, %l : (@C, @C) -> @C
  %pk = onnx.Mul %p, %k : (@C, @C) -> @C
  %p1 = onnx.Sub %pk, %w : (@C, @C) -> @C
  return %p1, %m1, %v1 : @C, @C, @C
})";
void AdamW(benchmark::State &state) { runLaunches(state, shaped(adamW, "1", "1048576"), 0.01, 1); }
BENCHMARK(AdamW)->Unit(benchmark::kMicrosecond);

} // namespace
