#include "compiler/codegen/cuda/gpu_to_llvm.h"
#include "compiler/codegen/cuda/cuda_kernels.h"
#include "compiler/codegen/cuda/grid_builder.h"
#include "compiler/codegen/kernels/kernels.h"
#include "compiler/codegen/kernels/math_expansion.h"
#include "dialects/pass_manager.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
namespace cleave::codegen {
namespace {

// Registers of a multiprocessor, and of a thread at most: ptxas would take up to 255.
constexpr int allRegisters = 65536, mostRegisters = 144;

// LLVM's name for an operation that GPUs have an instruction for: the conversion to NVVM would call libdevice for each.
StringRef intrinsicFor(Operation *op) {
  return llvm::TypeSwitch<Operation *, StringRef>(op)
      .Case([](math::SqrtOp) { return "llvm.sqrt"; })
      .Case([](math::AbsFOp) { return "llvm.fabs"; })
      .Case([](math::AbsIOp) { return "llvm.abs"; })
      .Case([](math::CopySignOp) { return "llvm.copysign"; })
      .Case([](math::FloorOp) { return "llvm.floor"; })
      .Case([](math::CeilOp) { return "llvm.ceil"; })
      .Case([](math::RoundEvenOp) { return "llvm.roundeven"; })
      .Case([](math::FmaOp) { return "llvm.fma"; })
      .Default([](Operation *) { return ""; });
}

// e^x = 2^(x log2 e), as CUDA's __expf: the error is 2 + 1.173 |x| units of the last place at most (CUDA C++
// Programming Guide, "Intrinsic Functions"). Results below the smallest normal number are 0.
void useApproximations(Operation *root) {
  SmallVector<math::ExpOp> found;
  root->walk([&](math::ExpOp op) {
    const bool isOf64 = op.getType().getIntOrFloatBitWidth() > 32;
    if (!isOf64 && bitEnumContainsAll(op.getFastmath(), arith::FastMathFlags::afn)) found.push_back(op);
  });
  for (math::ExpOp op : found) {
    OpBuilder builder(op);
    Location loc = op.getLoc();
    Type type = op.getType(), f32 = builder.getF32Type();
    const bool isNarrow = type.getIntOrFloatBitWidth() < 32;
    Value x = op.getOperand();
    if (isNarrow) x = arith::ExtFOp::create(builder, loc, f32, x);
    Value log2e = arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(1.44269504F));
    x = arith::MulFOp::create(builder, loc, x, log2e);
    Value y = LLVM::CallIntrinsicOp::create(builder, loc, f32, builder.getStringAttr("llvm.nvvm.ex2.approx.ftz"), x)
                  ->getResult(0);
    op.replaceAllUsesWith(isNarrow ? arith::TruncFOp::create(builder, loc, type, y).getResult() : y);
    op.erase();
  }
}

void useInstructions(Operation *root) {
  SmallVector<Operation *> found;
  root->walk([&](Operation *op) {
    if (!intrinsicFor(op).empty()) found.push_back(op);
  });
  for (Operation *op : found) {
    OpBuilder builder(op);
    SmallVector<Value> operands(op->getOperands());
    if (isa<math::AbsIOp>(op)) // the least integer stays itself
      operands.push_back(arith::ConstantOp::create(builder, op->getLoc(), builder.getBoolAttr(false)));
    auto call = LLVM::CallIntrinsicOp::create(builder, op->getLoc(), op->getResult(0).getType(),
                                              builder.getStringAttr(intrinsicFor(op)), operands);
    op->getResult(0).replaceAllUsesWith(call->getResult(0));
    op->erase();
  }
}

// One block must fit on a multiprocessor, or as many as its kernel asks for. It gives a warp's threads eight registers
// at a time. ptxas does not see to that itself for a kernel with a limit.
void limitRegisters(Operation *root) {
  root->walk([](LLVM::LLVMFuncOp function) {
    auto block = function->getAttrOfType<DenseI32ArrayAttr>(NVVM::NVVMDialect::getMaxntidAttrName());
    if (!block) return;
    auto blocks = plan::blocksAttr.of(function);
    const int threads = block[0] * static_cast<int>(blocks ? *blocks : 1);
    const int fitting = allRegisters / threads / 8 * 8;
    function->setAttr(NVVM::NVVMDialect::getMaxnregAttrName(),
                      Builder(function).getI32IntegerAttr(std::min(mostRegisters, fitting)));
  });
}

} // namespace

void registerCudaDialects(DialectRegistry &registry) {
  registerKernelDialects(registry);
  registry.insert<cf::ControlFlowDialect, gpu::GPUDialect, memref::MemRefDialect, NVVM::NVVMDialect, scf::SCFDialect>();
  registerGPUDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

std::unique_ptr<llvm::Module> gpuToLlvm(gpu::GPUModuleOp module, llvm::LLVMContext &context) {
  useApproximations(module);
  expandMath(module, /*fuses=*/true);
  useInstructions(module);
  PassManager passes(module.getContext());
  if (failed(configure(passes))) return nullptr;
  passes.addPass(createSCFToControlFlowPass());
  ConvertGpuOpsToNVVMOpsOptions toNvvm;
  toNvvm.indexBitwidth = 64;
  passes.addNestedPass<gpu::GPUModuleOp>(createConvertGpuOpsToNVVMOps(toNvvm));
  passes.addPass(createConvertControlFlowToLLVMPass());
  passes.addPass(createArithToLLVMConversionPass());
  passes.addPass(createReconcileUnrealizedCastsPass());
  if (failed(passes.run(module->getParentOfType<ModuleOp>()))) return nullptr;
  limitRegisters(module);
  return translateModuleToLLVMIR(module, context, "cleave-kernels");
}

} // namespace cleave::codegen
