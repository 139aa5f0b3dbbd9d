#include "compiler/codegen/kernels/kernels.h"
#include "compiler/codegen/kernels/kernel_loops.h"
#include "compiler/codegen/kernels/kernel_schedule.h"
#include "compiler/codegen/kernels/math_expansion.h"
#include "dialects/pass_manager.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/LLVMContext.h"

using namespace mlir;
namespace cleave::codegen {

void registerKernelDialects(DialectRegistry &registry) {
  registry.insert<arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect, LLVM::LLVMDialect, math::MathDialect,
                  tensor::TensorDialect, plan::PlanDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

static LogicalResult lowerToLlvm(ModuleOp loops) {
  expandMath(loops);
  PassManager passes(loops.getContext());
  if (failed(configure(passes))) return failure();
  passes.addPass(createConvertMathToLLVMPass());
  passes.addPass(createConvertMathToLibmPass());
  passes.addPass(createConvertFuncToLLVMPass());
  passes.addPass(createArithToLLVMConversionPass());
  passes.addPass(createReconcileUnrealizedCastsPass());
  return passes.run(loops);
}

FailureOr<KernelLibrary> compileKernels(ModuleOp module, const KernelOptions &options) {
  MLIRContext *context = module.getContext();
  DialectRegistry registry;
  registerKernelDialects(registry);
  context->appendDialectRegistry(registry);
  context->loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect>();

  KernelLibrary library;
  llvm::Expected<Target> target = resolveTarget(options.cpu);
  if (!target) return module.emitError() << llvm::toString(target.takeError());
  library.target = *target;
  OwningOpRef<ModuleOp> loops = ModuleOp::create(module.getLoc());
  for (auto kernel : module.getOps<plan::KernelOp>()) {
    FailureOr<KernelSchedule> schedule = KernelSchedule::of(kernel);
    if (failed(schedule)) return failure();
    buildKernelLoops(kernel, *schedule, *loops);
    library.kernels.push_back(
        {kernel.getSymName().str(),
         static_cast<int64_t>(kernel.getTensorArguments().size() + kernel.getYield().getValues().size()),
         static_cast<int64_t>(kernel.getScalarArguments().size()), kernel.getDescription().value_or("").str()});
  }
  if (library.kernels.empty()) return library;
  if (failed(lowerToLlvm(*loops))) return module.emitError("the kernels' loops could not be lowered to LLVM");

  llvm::LLVMContext llvmContext;
  // Remarks on loops that stay scalar are for whoever works on kernels (bench kernels), not for the console.
  llvmContext.setDiagnosticHandlerCallBack([](const llvm::DiagnosticInfo *, void *) {});
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(*loops, llvmContext, "cleave-kernels");
  if (!code) return module.emitError("the kernels could not be translated to LLVM IR");
  if (!options.dumpLlvmIr.empty()) {
    std::error_code error;
    llvm::raw_fd_ostream stream(options.dumpLlvmIr, error);
    if (error) return module.emitError() << "cannot write " << options.dumpLlvmIr << ": " << error.message();
    code->print(stream, nullptr);
  }
  llvm::Expected<std::string> object = buildSharedObject(*code, library.target);
  if (!object) return module.emitError() << llvm::toString(object.takeError());
  library.sharedObject = std::move(*object);
  return library;
}

void setKernelTarget(plan::Plan &plan, const Target &target) {
  plan.set_kernel_target(target.cpu);
  plan.mutable_kernel_features()->Assign(target.features.begin(), target.features.end());
}

} // namespace cleave::codegen
