// Clusters that training makes, compiled and compared with the reference evaluator.
#include "compiler/codegen/clusters/cluster_graph.h"
#include "test/unit/kernels/kernel_machine.h"
#include <gtest/gtest.h>

namespace cleave::test {
namespace {

// Compiles, expects this many kernels, compares; on the CPU, and on an emulated grid of GPU threads.
void check(const std::string &text, size_t kernels, double tolerance = 2e-6) {
  for (KernelMachine::Device device : {KernelMachine::Device::Cpu, KernelMachine::Device::Gpu}) {
    SCOPED_TRACE(device == KernelMachine::Device::Gpu ? "on an emulated grid" : "on the CPU");
    KernelMachine machine(text);
    ASSERT_TRUE(machine.compile(device));
    // A GPU's column sums may be cut in two.
    if (device == KernelMachine::Device::Cpu) EXPECT_EQ(machine.launches().size(), kernels) << machine.text();
    for (unsigned seed : {1u, 2u}) machine.expectSame(machine.randomInputs(seed), tolerance);
  }
}

TEST(Cluster, ElementwiseChain) {
  check(R"(func.func @f(%x: tensor<33x47xf32>, %y: tensor<33x47xf32>) -> tensor<33x47xf32> {
    %0 = onnx.Mul %x, %y : (tensor<33x47xf32>, tensor<33x47xf32>) -> tensor<33x47xf32>
    %1 = onnx.Tanh %0 : (tensor<33x47xf32>) -> tensor<33x47xf32>
    %2 = onnx.Add %1, %x : (tensor<33x47xf32>, tensor<33x47xf32>) -> tensor<33x47xf32>
    return %2 : tensor<33x47xf32>
  })",
        1);
}

TEST(Cluster, BiasGelu) {
  check(R"(func.func @f(%x: tensor<6x10x48xf32>, %b: tensor<48xf32>) -> tensor<6x10x48xf32> {
    %bb = onnx.Broadcast %b {shape = array<i64: 6, 10, 48>, dims = array<i64: 2>} : (tensor<48xf32>) -> tensor<6x10x48xf32>
    %h = onnx.Constant dense<0.5> : tensor<6x10x48xf32>
    %r = onnx.Constant dense<0.70710678118> : tensor<6x10x48xf32>
    %one = onnx.Constant dense<1.0> : tensor<6x10x48xf32>
    %0 = onnx.Add %x, %bb : (tensor<6x10x48xf32>, tensor<6x10x48xf32>) -> tensor<6x10x48xf32>
    %1 = onnx.Mul %0, %r : (tensor<6x10x48xf32>, tensor<6x10x48xf32>) -> tensor<6x10x48xf32>
    %2 = onnx.Erf %1 : (tensor<6x10x48xf32>) -> tensor<6x10x48xf32>
    %3 = onnx.Add %2, %one : (tensor<6x10x48xf32>, tensor<6x10x48xf32>) -> tensor<6x10x48xf32>
    %4 = onnx.Mul %3, %0 : (tensor<6x10x48xf32>, tensor<6x10x48xf32>) -> tensor<6x10x48xf32>
    %5 = onnx.Mul %4, %h : (tensor<6x10x48xf32>, tensor<6x10x48xf32>) -> tensor<6x10x48xf32>
    return %5 : tensor<6x10x48xf32>
  })",
        1);
}

const char *softmax = R"(func.func @f(%x: tensor<4x3x37xf32>, %m: tensor<3x37xi1>) -> tensor<4x3x37xf32> {
    %s = onnx.Constant dense<0.125> : tensor<4x3x37xf32>
    %inf = onnx.Constant dense<0xFF800000> : tensor<4x3x37xf32>
    %mb = onnx.Broadcast %m {shape = array<i64: 4, 3, 37>, dims = array<i64: 1, 2>} : (tensor<3x37xi1>) -> tensor<4x3x37xi1>
    %0 = onnx.Mul %x, %s : (tensor<4x3x37xf32>, tensor<4x3x37xf32>) -> tensor<4x3x37xf32>
    %1 = onnx.Where %mb, %0, %inf : (tensor<4x3x37xi1>, tensor<4x3x37xf32>, tensor<4x3x37xf32>) -> tensor<4x3x37xf32>
    %2 = onnx.ReduceMax %1 {axes = array<i64: 2>} : (tensor<4x3x37xf32>) -> tensor<4x3xf32>
    %3 = onnx.StopGradient %2 : (tensor<4x3xf32>) -> tensor<4x3xf32>
    %4 = onnx.Broadcast %3 {shape = array<i64: 4, 3, 37>, dims = array<i64: 0, 1>} : (tensor<4x3xf32>) -> tensor<4x3x37xf32>
    %5 = onnx.Sub %1, %4 : (tensor<4x3x37xf32>, tensor<4x3x37xf32>) -> tensor<4x3x37xf32>
    %6 = onnx.Exp %5 : (tensor<4x3x37xf32>) -> tensor<4x3x37xf32>
    %7 = onnx.ReduceSum %6 {axes = array<i64: 2>} : (tensor<4x3x37xf32>) -> tensor<4x3xf32>
    %8 = onnx.Broadcast %7 {shape = array<i64: 4, 3, 37>, dims = array<i64: 0, 1>} : (tensor<4x3xf32>) -> tensor<4x3x37xf32>
    %9 = onnx.Div %6, %8 : (tensor<4x3x37xf32>, tensor<4x3x37xf32>) -> tensor<4x3x37xf32>
    return %9 : tensor<4x3x37xf32>
  })";
TEST(Cluster, MaskedSoftmaxIsOneKernel) { check(softmax, 1); }

TEST(Cluster, ColumnSumWithItsProducer) {
  check(R"(func.func @f(%x: tensor<50x130xf32>, %y: tensor<50x130xf32>) -> (tensor<130xf32>, tensor<50x130xf32>) {
    %0 = onnx.Mul %x, %y : (tensor<50x130xf32>, tensor<50x130xf32>) -> tensor<50x130xf32>
    %1 = onnx.ReduceSum %0 {axes = array<i64: 0>} : (tensor<50x130xf32>) -> tensor<130xf32>
    return %1, %0 : tensor<130xf32>, tensor<50x130xf32>
  })",
        1);
}

TEST(Cluster, SoftmaxOverColumns) {
  check(R"(func.func @f(%x: tensor<2x9x70xf32>) -> tensor<2x9x70xf32> {
    %2 = onnx.ReduceMax %x {axes = array<i64: 1>} : (tensor<2x9x70xf32>) -> tensor<2x70xf32>
    %4 = onnx.Broadcast %2 {shape = array<i64: 2, 9, 70>, dims = array<i64: 0, 2>} : (tensor<2x70xf32>) -> tensor<2x9x70xf32>
    %5 = onnx.Sub %x, %4 : (tensor<2x9x70xf32>, tensor<2x9x70xf32>) -> tensor<2x9x70xf32>
    %6 = onnx.Exp %5 : (tensor<2x9x70xf32>) -> tensor<2x9x70xf32>
    %7 = onnx.ReduceSum %6 {axes = array<i64: 1>} : (tensor<2x9x70xf32>) -> tensor<2x70xf32>
    %r = onnx.Reciprocal %7 : (tensor<2x70xf32>) -> tensor<2x70xf32>
    %8 = onnx.Broadcast %r {shape = array<i64: 2, 9, 70>, dims = array<i64: 0, 2>} : (tensor<2x70xf32>) -> tensor<2x9x70xf32>
    %9 = onnx.Mul %6, %8 : (tensor<2x9x70xf32>, tensor<2x9x70xf32>) -> tensor<2x9x70xf32>
    return %9 : tensor<2x9x70xf32>
  })",
        1);
}

TEST(Cluster, BatchNormalizationStatistics) {
  check(R"(func.func @f(%x: tensor<4x5x6x6xf32>) -> (tensor<5xf32>, tensor<4x5x6x6xf32>) {
    %n = onnx.Constant dense<0.0069444444> : tensor<5xf32>
    %0 = onnx.ReduceSum %x {axes = array<i64: 0, 2, 3>} : (tensor<4x5x6x6xf32>) -> tensor<5xf32>
    %1 = onnx.Mul %0, %n : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
    %2 = onnx.Broadcast %1 {shape = array<i64: 4, 5, 6, 6>, dims = array<i64: 1>} : (tensor<5xf32>) -> tensor<4x5x6x6xf32>
    %3 = onnx.Sub %x, %2 : (tensor<4x5x6x6xf32>, tensor<4x5x6x6xf32>) -> tensor<4x5x6x6xf32>
    %4 = onnx.Mul %3, %3 : (tensor<4x5x6x6xf32>, tensor<4x5x6x6xf32>) -> tensor<4x5x6x6xf32>
    %5 = onnx.ReduceSum %4 {axes = array<i64: 0, 2, 3>} : (tensor<4x5x6x6xf32>) -> tensor<5xf32>
    return %5, %3 : tensor<5xf32>, tensor<4x5x6x6xf32>
  })",
        1);
}

// Mean and variance in one pass, of numbers that are far from zero beside their spread: sums of plain squares would have
// no digit left. Two kernels read the parts; on a GPU one of them reads the tensor.
TEST(Cluster, MomentsOfNumbersFarFromZero) {
  KernelMachine machine(R"(func.func @f(%x: tensor<2048x64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
    %n = onnx.Constant dense<4.8828125e-4> : tensor<64xf32>
    %0 = onnx.ReduceSum %x {axes = array<i64: 0>} : (tensor<2048x64xf32>) -> tensor<64xf32>
    %1 = onnx.Mul %0, %n : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %2 = onnx.Broadcast %1 {shape = array<i64: 2048, 64>, dims = array<i64: 1>} : (tensor<64xf32>) -> tensor<2048x64xf32>
    %3 = onnx.Sub %x, %2 : (tensor<2048x64xf32>, tensor<2048x64xf32>) -> tensor<2048x64xf32>
    %4 = onnx.Mul %3, %3 : (tensor<2048x64xf32>, tensor<2048x64xf32>) -> tensor<2048x64xf32>
    %5 = onnx.ReduceSum %4 {axes = array<i64: 0>} : (tensor<2048x64xf32>) -> tensor<64xf32>
    %6 = onnx.Mul %5, %n : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    return %1, %6 : tensor<64xf32>, tensor<64xf32>
  })");
  ASSERT_TRUE(machine.compile(KernelMachine::Device::Gpu));
  EXPECT_EQ(machine.launches().size(), 2) << machine.text();
  machine.expectSame(machine.randomInputs(1, 1000, 1001));
}

TEST(Cluster, HeadsAreSplitAndTransposedInTheIndexMap) {
  check(R"(func.func @f(%x: tensor<2x5x24xf32>, %y: tensor<2x3x5x8xf32>) -> tensor<2x3x5x8xf32> {
    %0 = onnx.Reshape %x {shape = array<i64: 2, 5, 3, 8>} : (tensor<2x5x24xf32>) -> tensor<2x5x3x8xf32>
    %1 = onnx.Transpose %0 {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x5x3x8xf32>) -> tensor<2x3x5x8xf32>
    %2 = onnx.Add %1, %y : (tensor<2x3x5x8xf32>, tensor<2x3x5x8xf32>) -> tensor<2x3x5x8xf32>
    return %2 : tensor<2x3x5x8xf32>
  })",
        1);
}

TEST(Cluster, RotaryHalves) {
  check(R"(func.func @f(%x: tensor<4x6x16xf32>, %c: tensor<6x8xf32>) -> tensor<4x6x8xf32> {
    %0 = onnx.Slice %x {starts = array<i64: 0, 0, 0>, sizes = array<i64: 4, 6, 8>, steps = array<i64: 1, 1, 1>} : (tensor<4x6x16xf32>) -> tensor<4x6x8xf32>
    %1 = onnx.Slice %x {starts = array<i64: 0, 0, 8>, sizes = array<i64: 4, 6, 8>, steps = array<i64: 1, 1, 1>} : (tensor<4x6x16xf32>) -> tensor<4x6x8xf32>
    %b = onnx.Broadcast %c {shape = array<i64: 4, 6, 8>, dims = array<i64: 1, 2>} : (tensor<6x8xf32>) -> tensor<4x6x8xf32>
    %2 = onnx.Mul %1, %b : (tensor<4x6x8xf32>, tensor<4x6x8xf32>) -> tensor<4x6x8xf32>
    %3 = onnx.Sub %0, %2 : (tensor<4x6x8xf32>, tensor<4x6x8xf32>) -> tensor<4x6x8xf32>
    return %3 : tensor<4x6x8xf32>
  })",
        1);
}

// x cos + (its halves turned) sin, of heads that lie across: the turned halves are never in memory.
TEST(Cluster, RotaryHalvesTurned) {
  check(R"(func.func @f(%x: tensor<2x6x3x8xf32>, %c: tensor<6x8xf32>, %s: tensor<6x8xf32>) -> tensor<2x3x6x8xf32> {
    %two = onnx.Constant dense<2.0> : tensor<2x3x6x8xf32>
    %t = onnx.Transpose %x {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x6x3x8xf32>) -> tensor<2x3x6x8xf32>
    %m = onnx.Mul %t, %two : (tensor<2x3x6x8xf32>, tensor<2x3x6x8xf32>) -> tensor<2x3x6x8xf32>
    %a = onnx.Slice %m {starts = array<i64: 0, 0, 0, 4>, sizes = array<i64: 2, 3, 6, 4>, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x3x6x8xf32>) -> tensor<2x3x6x4xf32>
    %n = onnx.Neg %a : (tensor<2x3x6x4xf32>) -> tensor<2x3x6x4xf32>
    %b = onnx.Slice %m {starts = array<i64: 0, 0, 0, 0>, sizes = array<i64: 2, 3, 6, 4>, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x3x6x8xf32>) -> tensor<2x3x6x4xf32>
    %r = onnx.Concat %n, %b {axis = 3 : i64} : (tensor<2x3x6x4xf32>, tensor<2x3x6x4xf32>) -> tensor<2x3x6x8xf32>
    %sin = onnx.Broadcast %s {shape = array<i64: 2, 3, 6, 8>, dims = array<i64: 2, 3>} : (tensor<6x8xf32>) -> tensor<2x3x6x8xf32>
    %cos = onnx.Broadcast %c {shape = array<i64: 2, 3, 6, 8>, dims = array<i64: 2, 3>} : (tensor<6x8xf32>) -> tensor<2x3x6x8xf32>
    %0 = onnx.Mul %r, %sin : (tensor<2x3x6x8xf32>, tensor<2x3x6x8xf32>) -> tensor<2x3x6x8xf32>
    %1 = onnx.Mul %m, %cos : (tensor<2x3x6x8xf32>, tensor<2x3x6x8xf32>) -> tensor<2x3x6x8xf32>
    %y = onnx.Add %0, %1 : (tensor<2x3x6x8xf32>, tensor<2x3x6x8xf32>) -> tensor<2x3x6x8xf32>
    return %y : tensor<2x3x6x8xf32>
  })",
        1);
}

// A slice that is reached twice.
TEST(Cluster, HalvesOfSquares) {
  check(R"(func.func @f(%x: tensor<6x4x8xf32>) -> tensor<4x6x8xf32> {
    %t = onnx.Transpose %x {perm = array<i64: 1, 0, 2>} : (tensor<6x4x8xf32>) -> tensor<4x6x8xf32>
    %a = onnx.Slice %t {starts = array<i64: 0, 0, 4>, sizes = array<i64: 4, 6, 4>, steps = array<i64: 1, 1, 1>} : (tensor<4x6x8xf32>) -> tensor<4x6x4xf32>
    %aa = onnx.Mul %a, %a : (tensor<4x6x4xf32>, tensor<4x6x4xf32>) -> tensor<4x6x4xf32>
    %b = onnx.Slice %t {starts = array<i64: 0, 0, 0>, sizes = array<i64: 4, 6, 4>, steps = array<i64: 1, 1, 1>} : (tensor<4x6x8xf32>) -> tensor<4x6x4xf32>
    %bb = onnx.Mul %b, %b : (tensor<4x6x4xf32>, tensor<4x6x4xf32>) -> tensor<4x6x4xf32>
    %r = onnx.Concat %aa, %bb {axis = 2 : i64} : (tensor<4x6x4xf32>, tensor<4x6x4xf32>) -> tensor<4x6x8xf32>
    %y = onnx.Add %r, %t : (tensor<4x6x8xf32>, tensor<4x6x8xf32>) -> tensor<4x6x8xf32>
    return %y : tensor<4x6x8xf32>
  })",
        1);
}

TEST(Cluster, CausalMaskFromIota) {
  check(R"(func.func @f(%x: tensor<3x9x9xf32>) -> tensor<3x9x9xf32> {
    %i = onnx.Iota {type = tensor<9x9xi64>, dim = 0 : i64} : () -> tensor<9x9xi64>
    %j = onnx.Iota {type = tensor<9x9xi64>, dim = 1 : i64} : () -> tensor<9x9xi64>
    %c = onnx.LessOrEqual %j, %i : (tensor<9x9xi64>, tensor<9x9xi64>) -> tensor<9x9xi1>
    %b = onnx.Broadcast %c {shape = array<i64: 3, 9, 9>, dims = array<i64: 1, 2>} : (tensor<9x9xi1>) -> tensor<3x9x9xi1>
    %z = onnx.Constant dense<-1.0e9> : tensor<3x9x9xf32>
    %y = onnx.Where %b, %x, %z : (tensor<3x9x9xi1>, tensor<3x9x9xf32>, tensor<3x9x9xf32>) -> tensor<3x9x9xf32>
    return %y : tensor<3x9x9xf32>
  })",
        1);
}

TEST(Cluster, DropoutDrawsThePhiloxNumbers) {
  check(R"(func.func @f(%x: tensor<40x30xf32>, %k: tensor<2xi64>) -> (tensor<40x30xf32>, tensor<40x30xf32>) {
    %u = onnx.RandomUniform %k {type = tensor<40x30xf32>, stream = 7 : i64} : (tensor<2xi64>) -> tensor<40x30xf32>
    %p = onnx.Constant dense<0.3> : tensor<40x30xf32>
    %z = onnx.Constant dense<0.0> : tensor<40x30xf32>
    %c = onnx.GreaterOrEqual %u, %p : (tensor<40x30xf32>, tensor<40x30xf32>) -> tensor<40x30xi1>
    %y = onnx.Where %c, %x, %z : (tensor<40x30xi1>, tensor<40x30xf32>, tensor<40x30xf32>) -> tensor<40x30xf32>
    return %y, %u : tensor<40x30xf32>, tensor<40x30xf32>
  })",
        2, 0);
}

TEST(Cluster, CrossEntropyRows) {
  check(R"(func.func @f(%x: tensor<12x301xf32>, %t: tensor<12xi64>) -> (tensor<12xf32>, tensor<12x301xf32>) {
    %i = onnx.Iota {type = tensor<12x301xi64>, dim = 1 : i64} : () -> tensor<12x301xi64>
    %tb = onnx.Broadcast %t {shape = array<i64: 12, 301>, dims = array<i64: 0>} : (tensor<12xi64>) -> tensor<12x301xi64>
    %hit = onnx.Equal %i, %tb : (tensor<12x301xi64>, tensor<12x301xi64>) -> tensor<12x301xi1>
    %m = onnx.ReduceMax %x {axes = array<i64: 1>} : (tensor<12x301xf32>) -> tensor<12xf32>
    %mb = onnx.Broadcast %m {shape = array<i64: 12, 301>, dims = array<i64: 0>} : (tensor<12xf32>) -> tensor<12x301xf32>
    %d = onnx.Sub %x, %mb : (tensor<12x301xf32>, tensor<12x301xf32>) -> tensor<12x301xf32>
    %e = onnx.Exp %d : (tensor<12x301xf32>) -> tensor<12x301xf32>
    %s = onnx.ReduceSum %e {axes = array<i64: 1>} : (tensor<12x301xf32>) -> tensor<12xf32>
    %l = onnx.Log %s : (tensor<12xf32>) -> tensor<12xf32>
    %z = onnx.Constant dense<0.0> : tensor<12x301xf32>
    %w = onnx.Where %hit, %d, %z : (tensor<12x301xi1>, tensor<12x301xf32>, tensor<12x301xf32>) -> tensor<12x301xf32>
    %ws = onnx.ReduceSum %w {axes = array<i64: 1>} : (tensor<12x301xf32>) -> tensor<12xf32>
    %loss = onnx.Sub %l, %ws : (tensor<12xf32>, tensor<12xf32>) -> tensor<12xf32>
    %sb = onnx.Broadcast %s {shape = array<i64: 12, 301>, dims = array<i64: 0>} : (tensor<12xf32>) -> tensor<12x301xf32>
    %p = onnx.Div %e, %sb : (tensor<12x301xf32>, tensor<12x301xf32>) -> tensor<12x301xf32>
    %oh = onnx.Cast %hit {to = f32} : (tensor<12x301xi1>) -> tensor<12x301xf32>
    %g = onnx.Sub %p, %oh : (tensor<12x301xf32>, tensor<12x301xf32>) -> tensor<12x301xf32>
    return %loss, %g : tensor<12xf32>, tensor<12x301xf32>
  })",
        1);
}

// The Mul feeds a product, the Add waits for it: two kernels, though they share %0.
TEST(Cluster, DoesNotCloseACycleThroughAProduct) {
  check(R"(func.func @f(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %0 = onnx.Mul %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = onnx.Contract %0, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %2 = onnx.Add %1, %0 : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    return %2 : tensor<8x8xf32>
  })",
        2);
}

TEST(Cluster, EqualKernelsAreMadeOnceForAllSizes) {
  KernelMachine machine(R"(func.func @f(%x: tensor<8x5xf32>, %y: tensor<70xf32>) -> (tensor<8x5xf32>, tensor<70xf32>) {
    %0 = onnx.Exp %x : (tensor<8x5xf32>) -> tensor<8x5xf32>
    %1 = onnx.Exp %y : (tensor<70xf32>) -> tensor<70xf32>
    return %0, %1 : tensor<8x5xf32>, tensor<70xf32>
  })");
  ASSERT_TRUE(machine.compile());
  EXPECT_EQ(machine.launches().size(), 2u);
  EXPECT_EQ(machine.numKernels(), 1u);
  machine.expectSame(machine.randomInputs(3));
}

TEST(Cluster, ScalarsAndIntegers) {
  check(
      R"(func.func @f(%a: tensor<i64>, %b: tensor<6xi64>, %c: tensor<6xi32>) -> (tensor<i64>, tensor<6xi64>, tensor<6xf32>) {
    %two = onnx.Constant dense<2> : tensor<i64>
    %0 = onnx.Mul %a, %two : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %one = onnx.Constant dense<1> : tensor<i64>
    %9 = onnx.Add %0, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %1 = onnx.Broadcast %9 {shape = array<i64: 6>, dims = array<i64>} : (tensor<i64>) -> tensor<6xi64>
    %2 = onnx.Div %b, %1 : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi64>
    %3 = onnx.Cast %c {to = f32} : (tensor<6xi32>) -> tensor<6xf32>
    return %0, %2, %3 : tensor<i64>, tensor<6xi64>, tensor<6xf32>
  })",
      3);
}

TEST(Cluster, AdamUpdatesInPlace) {
  KernelMachine machine(
      R"(func.func @f(%p: tensor<900xf32>, %m: tensor<900xf32>, %v: tensor<900xf32>, %g: tensor<900xf32>, %lr: tensor<f32>) -> (tensor<900xf32>, tensor<900xf32>, tensor<900xf32>) {
    %b1 = onnx.Constant dense<0.9> : tensor<900xf32>
    %c1 = onnx.Constant dense<0.1> : tensor<900xf32>
    %b2 = onnx.Constant dense<0.99> : tensor<900xf32>
    %c2 = onnx.Constant dense<0.01> : tensor<900xf32>
    %eps = onnx.Constant dense<1.0e-8> : tensor<900xf32>
    %l = onnx.Broadcast %lr {shape = array<i64: 900>, dims = array<i64>} : (tensor<f32>) -> tensor<900xf32>
    %m0 = onnx.Mul %m, %b1 : (tensor<900xf32>, tensor<900xf32>) -> tensor<900xf32>
    %g0 = onnx.Mul %g, %c1 : (tensor<900xf32>, tensor<900xf32>) -> tensor<900xf32>
    %m1 = onnx.Add %m0, %g0 : (tensor<900xf32>, tensor<900xf32>) -> tensor<900xf32>
    %g2 = onnx.Mul %g, %g : (tensor<900xf32>, tensor<900xf32>) -> tensor<900xf32>
    %v0 = onnx.Mul %v, %b2 : (tensor<900xf32>, tensor<900xf32>) -> tensor<900xf32>
    %g3 = onnx.Mul %g2, %c2 : (tensor<900xf32>, tensor<900xf32>) -> tensor<900xf32>
    %v1 = onnx.Add %v0, %g3 : (tensor<900xf32>, tensor<900xf32>) -> tensor<900xf32>
    %s = onnx.Abs %v1 : (tensor<900xf32>) -> tensor<900xf32>
    %q = onnx.Sqrt %s : (tensor<900xf32>) -> tensor<900xf32>
    %d = onnx.Add %q, %eps : (tensor<900xf32>, tensor<900xf32>) -> tensor<900xf32>
    %u = onnx.Div %m1, %d : (tensor<900xf32>, tensor<900xf32>) -> tensor<900xf32>
    %w = onnx.Mul %u, %l : (tensor<900xf32>, tensor<900xf32>) -> tensor<900xf32>
    %p1 = onnx.Sub %p, %w : (tensor<900xf32>, tensor<900xf32>) -> tensor<900xf32>
    return %p1, %m1, %v1 : tensor<900xf32>, tensor<900xf32>, tensor<900xf32>
  })");
  ASSERT_TRUE(machine.compile());
  ASSERT_EQ(machine.launches().size(), 1u);
  EXPECT_GE(machine.launches()[0].getInplace().size(), 6u);
  machine.expectSame(machine.randomInputs(5, 0.01, 1), 1e-5);
}

// The norm of the gradients of a model of 3,000 parameters: kernels of equal sums are shared, and none has a parameter
// for each tensor.
TEST(Cluster, SquaresOfThousandsOfTensors) {
  constexpr int tensors = 3000;
  std::string arguments, squares, terms, types;
  for (int i = 0; i < tensors; ++i) {
    const std::string n = std::to_string(i), comma = i ? ", " : "";
    arguments += comma + "%g" + n + ": tensor<7xf32>";
    squares += "%q" + n + " = onnx.Mul %g" + n + ", %g" + n + " : (tensor<7xf32>, tensor<7xf32>) -> tensor<7xf32>\n" +
               "%s" + n + " = onnx.ReduceSum %q" + n + " {axes = array<i64: 0>} : (tensor<7xf32>) -> tensor<f32>\n";
    terms += comma + "%s" + n;
    types += comma + "tensor<f32>";
  }
  const std::string text = "func.func @f(" + arguments + ") -> tensor<f32> {\n" + squares + "%sum = onnx.Sum " + terms +
                           " : (" + types +
                           ") -> tensor<f32>\n%norm = onnx.Sqrt %sum : (tensor<f32>) -> tensor<f32>\n"
                           "return %norm : tensor<f32> }";
  for (KernelMachine::Device device : {KernelMachine::Device::Cpu, KernelMachine::Device::Gpu}) {
    KernelMachine machine(text);
    ASSERT_TRUE(machine.compile(device));
    EXPECT_LE(machine.numKernels(), 8u);
    for (plan::LaunchOp launch : machine.launches())
      EXPECT_LE(launch.getInputs().size() + launch->getNumResults(), codegen::maxBuffers);
    machine.expectSame(machine.randomInputs(6));
  }
}

} // namespace
} // namespace cleave::test
