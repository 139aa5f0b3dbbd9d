#include "compiler/codegen/cuda/emulated_grid.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/ReplaceConstant.h"
#include "llvm/Support/ErrorHandling.h"

namespace cleave::codegen {
namespace {

// The entries of GridServices (runtime/engine/device/emulation/grid_services.h), in order.
enum Service {
  RunBlocks,
  ThreadNumber,
  BlockNumber,
  Barrier,
  ShuffleXor,
  SharedMemory,
  SharedAccess,
  LoadMatrices,
  Multiply
};

// Does it read matrices from shared memory, each lane the 16 bytes of a row?
bool isLoadOfMatrices(const llvm::Instruction &instruction) {
  auto *intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
  return intrinsic && (intrinsic->getIntrinsicID() == llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16 ||
                       intrinsic->getIntrinsicID() == llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16);
}
constexpr int64_t rowBytes = 16;

class Emulation {
public:
  explicit Emulation(llvm::Module &module) : module(module), context(module.getContext()) {
    pointer = llvm::PointerType::get(context, 0);
    i32 = llvm::Type::getInt32Ty(context);
    i64 = llvm::Type::getInt64Ty(context);
    table = new llvm::GlobalVariable(module, pointer, /*isConstant=*/false, llvm::GlobalValue::ExternalLinkage,
                                     llvm::ConstantPointerNull::get(pointer), "cleave_grid_services");
  }

  void run(const std::vector<CudaKernel> &kernels) {
    for (const CudaKernel &kernel : kernels) {
      tellSharedAccesses(*module.getFunction(kernel.symbol));
      bool synchronizes = replaceIntrinsics(*module.getFunction(kernel.symbol));
      wrap(kernel, synchronizes);
    }
    for (llvm::Function &function : llvm::make_early_inc_range(module)) {
      if (!function.isDeclaration()) continue;
      if (function.use_empty())
        function.eraseFromParent();
      else if (function.getName().starts_with("__nv_"))
        function.setName(function.getName().drop_front(5));
    }
    for (llvm::GlobalVariable &global : llvm::make_early_inc_range(module.globals()))
      if (global.getAddressSpace() == 3 && global.use_empty()) global.eraseFromParent();
    if (llvm::NamedMDNode *annotations = module.getNamedMetadata("nvvm.annotations")) annotations->eraseFromParent();
  }

private:
  llvm::Value *call(llvm::IRBuilder<> &builder, Service service, llvm::Type *result,
                    llvm::ArrayRef<llvm::Value *> arguments) {
    llvm::SmallVector<llvm::Type *> types;
    for (llvm::Value *argument : arguments) types.push_back(argument->getType());
    llvm::Value *services = builder.CreateLoad(pointer, table);
    llvm::Value *slot = builder.CreateConstInBoundsGEP1_64(pointer, services, service);
    return builder.CreateCall(llvm::FunctionType::get(result, types, false), builder.CreateLoad(pointer, slot),
                              arguments);
  }

  // The grid finds races by them (grid_services.h).
  void tellSharedAccesses(llvm::Function &kernel) {
    llvm::SmallVector<std::pair<llvm::Instruction *, llvm::Value *>> found; // with where
    for (llvm::BasicBlock &block : kernel)
      for (llvm::Instruction &instruction : block) {
        if (!instruction.mayReadOrWriteMemory()) continue;
        for (llvm::Value *operand : instruction.operands())
          if (operand->getType()->isPointerTy() && operand->getType()->getPointerAddressSpace() == 3)
            found.emplace_back(&instruction, operand);
      }
    llvm::Constant *name = nullptr;
    for (auto [instruction, at] : found) {
      llvm::IRBuilder<> builder(instruction);
      const bool isOfMatrices = isLoadOfMatrices(*instruction);
      if (!isOfMatrices && !llvm::isa<llvm::LoadInst, llvm::StoreInst>(instruction))
        llvm::report_fatal_error(llvm::Twine("no emulation of ") + instruction->getOpcodeName() + " in shared memory");
      if (!name) name = builder.CreateGlobalString(kernel.getName());
      const int64_t bytes =
          isOfMatrices
              ? rowBytes
              : static_cast<int64_t>(
                    module.getDataLayout().getTypeStoreSize(llvm::getLoadStoreType(instruction)).getFixedValue());
      call(builder, SharedAccess, llvm::Type::getVoidTy(context),
           {name, at, llvm::ConstantInt::getSigned(i64, bytes),
            builder.getInt32(llvm::isa<llvm::StoreInst>(instruction))});
    }
  }

  // Memory of a thread for what a service is given or gives.
  llvm::Value *wordsOf(llvm::Function &kernel, uint64_t count) {
    llvm::IRBuilder<> builder(&kernel.getEntryBlock(), kernel.getEntryBlock().getFirstInsertionPt());
    return builder.CreateAlloca(llvm::ArrayType::get(i32, count));
  }

  // Do threads of a block wait for each other?
  bool replaceIntrinsics(llvm::Function &kernel) {
    bool synchronizes = false;
    llvm::SmallVector<llvm::IntrinsicInst *> found;
    for (llvm::BasicBlock &block : kernel)
      for (llvm::Instruction &instruction : block)
        if (auto *intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction))
          if (intrinsic->getCalledFunction()->getName().starts_with("llvm.nvvm.")) found.push_back(intrinsic);
    for (llvm::IntrinsicInst *intrinsic : found) {
      llvm::IRBuilder<> builder(intrinsic);
      llvm::Value *made = nullptr;
      switch (intrinsic->getIntrinsicID()) {
      case llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x:
        made = call(builder, ThreadNumber, i32, {});
        break;
      case llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x:
        made = call(builder, BlockNumber, i32, {});
        break;
      case llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all:
        call(builder, Barrier, llvm::Type::getVoidTy(context), {});
        synchronizes = true;
        break;
      case llvm::Intrinsic::nvvm_shfl_sync_bfly_i32:
        made = call(builder, ShuffleXor, i32, {intrinsic->getArgOperand(1), intrinsic->getArgOperand(2)});
        synchronizes = true;
        break;
      case llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16:
      case llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16: {
        llvm::Value *matrices = wordsOf(kernel, 4);
        const bool isTransposed =
            intrinsic->getIntrinsicID() == llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16;
        call(builder, LoadMatrices, llvm::Type::getVoidTy(context),
             {intrinsic->getArgOperand(0), matrices, builder.getInt32(isTransposed)});
        made = builder.CreateLoad(intrinsic->getType(), matrices);
        synchronizes = true;
        break;
      }
      case llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16:
      case llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32: {
        llvm::Value *operands = wordsOf(kernel, 6), *sums = wordsOf(kernel, 4);
        for (unsigned i = 0; i < 10; ++i)
          builder.CreateStore(intrinsic->getArgOperand(i),
                              builder.CreateConstInBoundsGEP1_64(i32, i < 6 ? operands : sums, i < 6 ? i : i - 6));
        const bool isBf16 = intrinsic->getIntrinsicID() == llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16;
        call(builder, Multiply, llvm::Type::getVoidTy(context), {operands, sums, builder.getInt32(isBf16)});
        made = builder.CreateLoad(intrinsic->getType(), sums);
        synchronizes = true;
        break;
      }
      case llvm::Intrinsic::nvvm_ex2_approx_ftz:
        made = builder.CreateUnaryIntrinsic(llvm::Intrinsic::exp2, intrinsic->getArgOperand(0));
        break;
      default:
        llvm::report_fatal_error("no emulation of " + intrinsic->getCalledFunction()->getName());
      }
      if (made) intrinsic->replaceAllUsesWith(made);
      intrinsic->eraseFromParent();
    }
    for (llvm::GlobalVariable &global : module.globals()) {
      if (global.getAddressSpace() != 3) continue;
      llvm::convertUsersOfConstantsToInstructions({&global}, &kernel);
      llvm::IRBuilder<> builder(&kernel.getEntryBlock(), kernel.getEntryBlock().getFirstInsertionPt());
      llvm::Value *shared = nullptr;
      global.replaceUsesWithIf(
          [&]() -> llvm::Value * { return shared = call(builder, SharedMemory, global.getType(), {}); }(),
          [&](llvm::Use &use) {
            auto *user = llvm::dyn_cast<llvm::Instruction>(use.getUser());
            return user && user->getFunction() == &kernel;
          });
      if (shared && shared->use_empty()) llvm::cast<llvm::Instruction>(shared)->eraseFromParent();
    }
    return synchronizes;
  }

  void wrap(const CudaKernel &kernel, bool synchronizes) {
    llvm::Function &code = *module.getFunction(kernel.symbol);
    code.setName(kernel.symbol + ".code");
    code.setCallingConv(llvm::CallingConv::C);
    code.setLinkage(llvm::GlobalValue::InternalLinkage);
    code.setAttributes({});

    // One thread: the context is {buffers, scalars, end}.
    auto *one = llvm::Function::Create(llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer}, false),
                                       llvm::GlobalValue::InternalLinkage, kernel.symbol + ".thread", module);
    llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "", one));
    auto field = [&](llvm::Value *base, llvm::Type *type, int64_t number) -> llvm::Value * {
      return builder.CreateLoad(type, builder.CreateConstInBoundsGEP1_64(type, base, number));
    };
    llvm::Value *buffers = field(one->getArg(0), pointer, 0), *scalars = field(one->getArg(0), pointer, 1);
    llvm::SmallVector<llvm::Value *> arguments;
    auto count = static_cast<int64_t>(code.arg_size());
    for (int64_t i = 0; i + 1 < count; ++i) {
      llvm::Type *type = code.getArg(i)->getType();
      arguments.push_back(i < kernel.buffers ? field(buffers, type, i) : field(scalars, type, i - kernel.buffers));
    }
    arguments.push_back(field(one->getArg(0), i64, 2));
    builder.CreateCall(&code, arguments);
    builder.CreateRetVoid();

    auto *entry = llvm::Function::Create(
        llvm::FunctionType::get(llvm::Type::getVoidTy(context), {i64, i64, pointer, pointer}, false),
        llvm::GlobalValue::ExternalLinkage, kernel.symbol, module);
    builder.SetInsertPoint(llvm::BasicBlock::Create(context, "", entry));
    llvm::Value *passed = builder.CreateAlloca(pointer, builder.getInt64(3));
    auto set = [&](llvm::Value *value, int64_t number) {
      builder.CreateStore(value, builder.CreateConstInBoundsGEP1_64(pointer, passed, number));
    };
    set(entry->getArg(2), 0);
    set(entry->getArg(3), 1);
    set(entry->getArg(1), 2);
    llvm::Value *grain = builder.getInt64(static_cast<uint64_t>(kernel.grain));
    llvm::Value *first = builder.CreateUDiv(entry->getArg(0), grain);
    llvm::Value *last = builder.CreateUDiv(
        builder.CreateAdd(entry->getArg(1), builder.getInt64(static_cast<uint64_t>(kernel.grain - 1))), grain);
    call(builder, RunBlocks, llvm::Type::getVoidTy(context),
         {one, passed, first, last, builder.getInt32(static_cast<uint32_t>(kernel.threads)),
          builder.getInt32(static_cast<uint32_t>(kernel.sharedBytes)), builder.getInt32(synchronizes)});
    builder.CreateRetVoid();
  }

  llvm::Module &module;
  llvm::LLVMContext &context;
  llvm::PointerType *pointer;
  llvm::Type *i32, *i64;
  llvm::GlobalVariable *table;
};

} // namespace

void emulateGrid(llvm::Module &module, const std::vector<CudaKernel> &kernels) { Emulation(module).run(kernels); }

} // namespace cleave::codegen
