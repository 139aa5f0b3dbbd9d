// A column sum that is kept in fp64 does not halve the width of the fp32 arithmetic before it.
#include "compiler/codegen/kernels/shared_object.h"
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

TEST(Registers, SumsIn64BitsDoNotHalveThem) {
  if (!llvm::Triple(llvm::sys::getDefaultTargetTriple()).isX86()) GTEST_SKIP() << "x86's register sizes";
  for (auto [cpu, width] : {std::pair("x86-64-v4", "<16 x float>"), {"x86-64-v3", "<8 x float>"}}) {
    llvm::LLVMContext context;
    llvm::SMDiagnostic error;
    auto module = llvm::parseAssemblyString(squaresInto64Bits, error, context);
    ASSERT_TRUE(module) << error.getMessage().str();
    auto object = codegen::buildSharedObject(*module, codegen::resolveTarget({.cpu = cpu}));
    ASSERT_TRUE(bool(object)) << llvm::toString(object.takeError());
    std::string text;
    llvm::raw_string_ostream stream(text);
    module->print(stream, nullptr);
    EXPECT_NE(text.find(std::string("fmul ") + width), std::string::npos) << cpu << "\n" << text;
  }
}

} // namespace
