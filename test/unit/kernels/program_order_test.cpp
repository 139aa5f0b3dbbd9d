#include "compiler/codegen/clusters/program_order.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>

namespace cleave::codegen {
namespace {

using namespace mlir;

// The operations of a function as "name name ...", by the attribute `n`.
std::string namesOf(Block &block) {
  std::string names;
  for (Operation &op : block)
    if (auto name = op.getAttrOfType<StringAttr>("n")) names += (names.empty() ? "" : " ") + name.str();
  return names;
}

struct Parsed {
  Parsed() {
    context.loadDialect<func::FuncDialect, onnx::OnnxDialect>();
    module = parseSourceString<ModuleOp>(R"(
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %a = onnx.Exp %x {n = "a"} : (tensor<4xf32>) -> tensor<4xf32>
  %b = onnx.Neg %x {n = "b"} : (tensor<4xf32>) -> tensor<4xf32>
  %c = onnx.Neg %b {n = "c"} : (tensor<4xf32>) -> tensor<4xf32>
  %d = onnx.Neg %a {n = "d"} : (tensor<4xf32>) -> tensor<4xf32>
  %e = onnx.Exp %a {n = "e"} : (tensor<4xf32>) -> tensor<4xf32>
  return %c, %d, %e : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
})",
                                         &context);
    block = &(*module->getOps<func::FuncOp>().begin()).front();
  }
  Operation *named(StringRef name) {
    for (Operation &op : *block)
      if (auto given = op.getAttrOfType<StringAttr>("n"); given && given.getValue() == name) return &op;
    return nullptr;
  }
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  Block *block = nullptr;
};

// A kernel stands late, but what reads it stands early: it comes before that, and what stands between stays behind.
TEST(ProgramOrder, WhatIsReadEarlyComesEarly) {
  Parsed parsed;
  parsed.named("b")->moveBefore(parsed.named("e"));
  ASSERT_EQ(namesOf(*parsed.block), "a c d b e");
  ASSERT_TRUE(sortInProgramOrder(*parsed.block));
  EXPECT_EQ(namesOf(*parsed.block), "a b c d e");
}

TEST(ProgramOrder, AnOrderThatIsOneStays) {
  Parsed parsed;
  ASSERT_TRUE(sortInProgramOrder(*parsed.block));
  EXPECT_EQ(namesOf(*parsed.block), "a b c d e");
}

TEST(ProgramOrder, ACircleIsLeftAlone) {
  Parsed parsed;
  parsed.named("b")->setOperand(0, parsed.named("c")->getResult(0));
  EXPECT_FALSE(sortInProgramOrder(*parsed.block));
  EXPECT_EQ(namesOf(*parsed.block), "a b c d e");
  parsed.named("b")->setOperand(0, parsed.block->getArgument(0));
}

} // namespace
} // namespace cleave::codegen
