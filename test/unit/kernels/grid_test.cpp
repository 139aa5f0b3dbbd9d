// Kernels of every shape that a grid has, on an emulated grid: rows for a warp, for a block in registers, for a block
// in shared memory as a whole or in part; columns with and without whole tiles; ends that are no multiple of anything;
// 16-bit elements.
#include "test/unit/kernels/kernel_machine.h"
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace cleave::test {
namespace {

void check(const std::string &text, double tolerance) {
  SCOPED_TRACE(text);
  KernelMachine machine(text);
  ASSERT_TRUE(machine.compile(KernelMachine::Device::Gpu));
  machine.expectSame(machine.randomInputs(3), tolerance);
}

std::string softmax(int64_t rows, int64_t columns, const char *element = "f32") {
  std::string whole = fmt::format("tensor<{}x{}x{}>", rows, columns, element);
  std::string row = fmt::format("tensor<{}x{}>", rows, element);
  std::string spread =
      fmt::format("{{shape = array<i64: {}, {}>, dims = array<i64: 0>}} : ({}) -> {}", rows, columns, row, whole);
  std::string same = fmt::format("({}, {}) -> {}", whole, whole, whole);
  return fmt::format(R"(func.func @f(%x: {0}) -> {0} {{
    %0 = onnx.ReduceMax %x {{axes = array<i64: 1>}} : ({0}) -> {1}
    %1 = onnx.Broadcast %0 {2}
    %2 = onnx.Sub %x, %1 : {3}
    %3 = onnx.Exp %2 : ({0}) -> {0}
    %4 = onnx.ReduceSum %3 {{axes = array<i64: 1>}} : ({0}) -> {1}
    %5 = onnx.Broadcast %4 {2}
    %6 = onnx.Div %3, %5 : {3}
    return %6 : {0}
  }})",
                     whole, row, spread, same);
}

TEST(Grid, RowsOfEveryLength) {
  for (int64_t columns : {1, 3, 32, 37, 64, 1000, 1024}) check(softmax(6, columns), 2e-6);
  for (int64_t columns : {1028, 3001, 8192}) check(softmax(3, columns), 2e-6);
  for (int64_t columns : {8196, 20001}) check(softmax(2, columns), 2e-6);
}

// A row that shared memory has as a whole (81 KiB on sm_80), to a part, and one whose last step is no whole vector.
TEST(Grid, LongRowsIn16Bits) {
  for (int64_t columns : {9000, 40000, 50304, 50257}) {
    check(softmax(2, columns, "bf16"), 1e-2);
    check(softmax(2, columns, "f16"), 2e-3);
  }
  check(softmax(1, 131072), 2e-6);
}

// Two long tensors are kept, each where it is first read: the gradient of a softmax before its product with a third
// one, which is read once.
TEST(Grid, LongRowsOfSeveralTensors) {
  for (int64_t columns : {9000, 33000}) {
    std::string whole = fmt::format("tensor<3x{}xf32>", columns), row = "tensor<3xf32>";
    check(fmt::format(R"(func.func @f(%y: {0}, %dy: {0}, %z: {0}) -> ({0}, {1}) {{
      %0 = onnx.Mul %y, %dy : {2}
      %1 = onnx.ReduceSum %0 {{axes = array<i64: 1>}} : ({0}) -> {1}
      %2 = onnx.Broadcast %1 {{shape = array<i64: 3, {3}>, dims = array<i64: 0>}} : ({1}) -> {0}
      %3 = onnx.Sub %dy, %2 : {2}
      %4 = onnx.Mul %y, %3 : {2}
      %5 = onnx.Mul %4, %z : {2}
      %6 = onnx.ReduceSum %5 {{axes = array<i64: 1>}} : ({0}) -> {1}
      return %4, %6 : {0}, {1}
    }})",
                      whole, row, fmt::format("({0}, {0}) -> {0}", whole), columns),
          2e-6);
  }
}

TEST(Grid, ColumnsOfEveryNumber) {
  for (int64_t rows : {1, 2, 7, 100, 513})
    for (int64_t columns : {3, 37, 128, 260}) {
      std::string whole = fmt::format("tensor<{}x{}xf32>", rows, columns),
                  sums = fmt::format("tensor<{}xf32>", columns);
      check(fmt::format(R"(func.func @f(%x: {0}, %y: {0}) -> ({1}, {1}) {{
        %0 = onnx.Mul %x, %y : ({0}, {0}) -> {0}
        %1 = onnx.ReduceSum %0 {{axes = array<i64: 0>}} : ({0}) -> {1}
        %2 = onnx.ReduceMax %0 {{axes = array<i64: 0>}} : ({0}) -> {1}
        return %1, %2 : {1}, {1}
      }})",
                        whole, sums),
            2e-6);
    }
}

// The update of a batch norm's scale by sums that were made in parts: one thread of a column reads parameter and moment
// and writes them, so they stay where they are. The factor is read by all of a column's threads before, and does not.
TEST(Grid, WhatOneThreadOfATeamReadsIsWrittenInPlace) {
  for (int64_t parts : {1, 2, 100})
    for (int64_t columns : {37, 260}) {
      SCOPED_TRACE(fmt::format("{} parts of {} columns", parts, columns));
      std::string whole = fmt::format("tensor<{}x{}xf32>", parts, columns),
                  sums = fmt::format("tensor<{}xf32>", columns);
      std::string same = fmt::format("({0}, {0}) -> {0}", sums);
      KernelMachine machine(fmt::format(R"(func.func @f(%x: {0}, %p: {1}, %m: {1}, %f: {1}) -> ({1}, {1}, {1}) {{
        %0 = onnx.Broadcast %f {{shape = array<i64: {3}, {4}>, dims = array<i64: 1>}} : ({1}) -> {0}
        %1 = onnx.Mul %x, %0 : ({0}, {0}) -> {0}
        %2 = onnx.ReduceSum %1 {{axes = array<i64: 0>}} : ({0}) -> {1}
        %3 = onnx.Add %m, %2 : {2}
        %4 = onnx.Sub %p, %3 : {2}
        %5 = onnx.Mul %f, %2 : {2}
        return %3, %4, %5 : {1}, {1}, {1}
      }})",
                                        whole, sums, same, parts, columns));
      ASSERT_TRUE(machine.compile(KernelMachine::Device::Gpu));
      ASSERT_EQ(machine.launches().size(), 1u);
      machine.expectSame(machine.randomInputs(4), 2e-6);
      if (parts == 1) continue; // nothing is summed up
      plan::LaunchOp launch = machine.launches()[0];
      const llvm::ArrayRef<int64_t> inplace = launch.getInplace();
      for (size_t i = 0; i < inplace.size(); i += 2)
        EXPECT_NE(llvm::cast<mlir::BlockArgument>(launch.getInputs()[inplace[i]]).getArgNumber(), 3u);
      EXPECT_EQ(inplace.size(), 12u); // pairs: parameter and moment, each under any of the three results
    }
}

TEST(Grid, ElementsOfEveryNumber) {
  for (int64_t count : {1, 3, 4, 1023, 1024, 1025, 5000})
    check(fmt::format(R"(func.func @f(%x: tensor<{0}xf32>, %m: tensor<{0}xi1>) -> tensor<{0}xf32> {{
      %0 = onnx.Neg %x : (tensor<{0}xf32>) -> tensor<{0}xf32>
      %1 = onnx.Where %m, %x, %0 : (tensor<{0}xi1>, tensor<{0}xf32>, tensor<{0}xf32>) -> tensor<{0}xf32>
      return %1 : tensor<{0}xf32>
    }})",
                      count),
          0);
}

TEST(Grid, SixteenBitElements) {
  check(softmax(5, 200, "bf16"), 1e-2);
  check(softmax(5, 200, "f16"), 2e-3);
}

} // namespace
} // namespace cleave::test
