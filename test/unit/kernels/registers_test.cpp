// The code that LLVM makes of the loops: vectors, as wide as they can be.
#include "compiler/codegen/kernels/kernels.h"
#include "compiler/codegen/kernels/loop_builder.h"
#include "compiler/codegen/kernels/shared_object.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"
#include <gtest/gtest.h>

using namespace cleave;

namespace {

constexpr const char *squaresInto64Bits = R"(
define void @sum(ptr %sums, ptr %x, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr inbounds float, ptr %x, i64 %i
  %value = load float, ptr %at, !llvm.access.group !1
  %square = fmul float %value, %value
  %sum = getelementptr inbounds double, ptr %sums, i64 %i
  %old = load double, ptr %sum, !llvm.access.group !1
  %wide = fpext float %square to double
  %new = fadd double %old, %wide
  store double %new, ptr %sum, !llvm.access.group !1
  %next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit, !llvm.loop !2
exit:
  ret void
}
!1 = distinct !{}
!2 = distinct !{!2, !3}
!3 = !{!"llvm.loop.parallel_accesses", !1}
)";

// A column sum that is kept in fp64 does not halve the width of the fp32 arithmetic before it.
TEST(Registers, SumsIn64BitsDoNotHalveThem) {
  if (!llvm::Triple(llvm::sys::getDefaultTargetTriple()).isX86()) GTEST_SKIP() << "x86's register sizes";
  for (auto [cpu, width] : {std::pair("x86-64-v4", "<16 x float>"), {"x86-64-v3", "<8 x float>"}}) {
    llvm::LLVMContext context;
    llvm::SMDiagnostic error;
    auto module = llvm::parseAssemblyString(squaresInto64Bits, error, context);
    ASSERT_TRUE(module) << error.getMessage().str();
    auto object = codegen::buildSharedObject(*module, *codegen::resolveTarget(cpu));
    ASSERT_TRUE(bool(object)) << llvm::toString(object.takeError());
    std::string text;
    llvm::raw_string_ostream stream(text);
    module->print(stream, nullptr);
    EXPECT_NE(text.find(std::string("fmul ") + width), std::string::npos) << cpu << "\n" << text;
  }
}

// y[i] = x[i] / x[0] and where it is no number, i below 24: LLVM unrolls so few iterations before it looks for vectors,
// and finds none then for results of one byte beside those of four.
TEST(Registers, ShortRowsWithAMaskAreVectors) {
  if (!llvm::Triple(llvm::sys::getDefaultTargetTriple()).isX86()) GTEST_SKIP() << "x86's register sizes";
  mlir::DialectRegistry registry;
  codegen::registerKernelDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<mlir::arith::ArithDialect, mlir::LLVM::LLVMDialect>();
  mlir::Location loc = mlir::UnknownLoc::get(&context);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
  codegen::LoopBuilder loops(loc, *module, "rows");
  mlir::Type f32 = loops.here().getF32Type();
  loops.open(loops.begin(), loops.end(), false);
  mlir::Value sum = loops.load(loops.here(), loops.buffer(0), f32, loops.number(0), false);
  mlir::Value i = loops.open(loops.number(0), loops.number(24), true);
  mlir::Value x = loops.load(loops.here(), loops.buffer(0), f32, i, true);
  mlir::Value y = mlir::arith::DivFOp::create(loops.here(), loc, x, sum);
  loops.store(y, loops.buffer(1), i, true);
  loops.store(mlir::arith::CmpFOp::create(loops.here(), loc, mlir::arith::CmpFPredicate::UNO, y, y), loops.buffer(2), i,
              true);
  loops.close();
  loops.close();
  loops.finish();
  mlir::PassManager passes(&context);
  passes.addPass(mlir::createArithToLLVMConversionPass());
  ASSERT_TRUE(mlir::succeeded(passes.run(*module)));
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> code = mlir::translateModuleToLLVMIR(*module, llvmContext, "rows");
  ASSERT_TRUE(code);
  auto object = codegen::buildSharedObject(*code, *codegen::resolveTarget("x86-64-v4"));
  ASSERT_TRUE(bool(object)) << llvm::toString(object.takeError());
  std::string text;
  llvm::raw_string_ostream stream(text);
  code->print(stream, nullptr);
  EXPECT_NE(text.find("fdiv <"), std::string::npos) << text;
  EXPECT_EQ(text.find("fdiv float"), std::string::npos) << text;
}

} // namespace
