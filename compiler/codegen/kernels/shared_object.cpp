#include "compiler/codegen/kernels/shared_object.h"
#include "compiler/codegen/kernels/narrow_floats.h"
#include "lld/Common/Driver.h"
#include "runtime/base/cpu_features.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include <mutex>

LLD_HAS_DRIVER(elf)

namespace cleave::codegen {
namespace {

llvm::Error codeError(const llvm::Twine &what) { return llvm::createStringError(llvm::inconvertibleErrorCode(), what); }

void initializeOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

std::string listed(const Target &target) {
  std::string list;
  for (const std::string &feature : target.features) list += (list.empty() ? "+" : ",+") + feature;
  return list;
}

llvm::Expected<std::unique_ptr<llvm::TargetMachine>> makeMachine(const Target &target) {
  initializeOnce();
  std::string error;
  llvm::Triple triple(target.triple);
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found) return codeError("kernels cannot be compiled for " + target.triple + ": " + error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard; // operations marked `contract` become fused multiply-adds
  std::unique_ptr<llvm::TargetMachine> machine(found->createTargetMachine(
      triple, "x86-64", listed(target), options, llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Default));
  if (!machine) return codeError("no code generator for " + target.triple);
  return machine;
}

// Functions of a compiler's own library begin so; an older system's library lacks some of them.
llvm::Error checkCalls(llvm::StringRef object) {
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernels"));
  if (!file) return file.takeError();
  for (const llvm::object::SymbolRef &symbol : (*file)->symbols()) {
    auto flags = symbol.getFlags();
    auto name = symbol.getName();
    if (!flags) return flags.takeError();
    if (!name) return name.takeError();
    if ((*flags & llvm::object::SymbolRef::SF_Undefined) && name->starts_with("__"))
      return codeError("the kernels would call '" + *name + "', which not every system has");
  }
  return llvm::Error::success();
}

// lld reads and writes files: two temporary ones, removed on every way out.
llvm::Expected<std::string> link(llvm::StringRef object) {
  llvm::SmallString<128> input, output;
  if (std::error_code code = llvm::sys::fs::createTemporaryFile("cleave-kernels", "o", input))
    return codeError("no temporary file for kernel code: " + code.message());
  llvm::FileRemover removeInput(input);
  if (std::error_code code = llvm::sys::fs::createTemporaryFile("cleave-kernels", "so", output))
    return codeError("no temporary file for kernel code: " + code.message());
  llvm::FileRemover removeOutput(output);
  std::error_code code;
  {
    llvm::raw_fd_ostream stream(input, code);
    if (!code) stream << object;
    stream.close();
    if (!code) code = stream.error();
    stream.clear_error();
  }
  if (code) return codeError("cannot write " + input.str() + ": " + code.message());
  std::string errors;
  {
    static std::mutex oneAtATime; // lld has global state
    std::lock_guard<std::mutex> lock(oneAtATime);
    llvm::raw_string_ostream stream(errors);
    const char *arguments[] = {"ld.lld",          "-shared", "--no-undefined-version", "-O1",
                               "--build-id=none", "-o",      output.c_str(),           input.c_str()};
    lld::Result result = lld::lldMain(arguments, llvm::nulls(), stream, {{lld::Gnu, &lld::elf::link}});
    if (result.retCode != 0) return codeError("linking the kernels failed: " + errors);
  }
  auto bytes = llvm::MemoryBuffer::getFile(output, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!bytes) return codeError("cannot read " + output.str() + ": " + bytes.getError().message());
  return (*bytes)->getBuffer().str();
}

// Loops that keep a long sum in fp64 take as many elements as a register has of fp32, in which they compute the rest.
// By itself LLVM counts the largest number that is read or written, and all else would fill half a register.
void fillRegisters(llvm::Function &function, const llvm::TargetTransformInfo &target) {
  llvm::LLVMContext &context = function.getContext();
  const uint64_t bits = target.getRegisterBitWidth(llvm::TargetTransformInfo::RGK_FixedWidthVector).getFixedValue();
  if (bits < 64) return; // no vectors
  auto isFloat = [](const llvm::Instruction &one) { return one.getType()->isFloatTy(); };
  auto isDouble = [](const llvm::Instruction &one) { return one.getType()->isDoubleTy(); };
  llvm::Metadata *width[] = {
      llvm::MDString::get(context, "llvm.loop.vectorize.width"),
      llvm::ConstantAsMetadata::get(llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), bits / 32))};
  for (llvm::BasicBlock &block : function) {
    llvm::MDNode *loop = block.getTerminator()->getMetadata(llvm::LLVMContext::MD_loop);
    if (!loop || !llvm::findOptionMDForLoopID(loop, "llvm.loop.parallel_accesses")) continue;
    if (llvm::none_of(block, isFloat) || llvm::none_of(block, isDouble)) continue;
    llvm::SmallVector<llvm::Metadata *> options(loop->op_begin(), loop->op_end());
    options.push_back(llvm::MDNode::get(context, width));
    llvm::MDNode *wide = llvm::MDNode::getDistinct(context, options);
    wide->replaceOperandWith(0, wide); // a loop's name is the node itself
    block.getTerminator()->setMetadata(llvm::LLVMContext::MD_loop, wide);
  }
}

} // namespace

void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.LoopInterleaving = tuning.SLPVectorization = true;
  llvm::PassBuilder passes(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(components);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, components, modules);
  passes.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(module, modules);
}

llvm::Expected<Target> resolveTarget(const std::string &cpu) {
  initializeOnce();
  Target target{llvm::sys::getDefaultTargetTriple(), cpu, {}};
  const llvm::Triple triple(target.triple);
  if (triple.getArch() != llvm::Triple::x86_64)
    return codeError("kernels are compiled for x86-64 CPUs, and this machine is " + target.triple);
  if (cpu == "native") {
    target.cpu = llvm::sys::getHostCPUName().str();
    llvm::copy_if(runtime::cpuFeatures(), std::back_inserter(target.features), runtime::cpuHas);
    return target;
  }
  std::string error;
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  std::unique_ptr<llvm::MCSubtargetInfo> any(found ? found->createMCSubtargetInfo(triple, "", "") : nullptr);
  if (!any) return codeError("no code generator for " + target.triple + ": " + error);
  if (!any->isCPUStringValid(cpu))
    return codeError("no x86-64 CPU is called '" + cpu +
                     "'; --cpu takes native, x86-64, x86-64-v2, x86-64-v3, x86-64-v4, or a name such as haswell, "
                     "znver3 or sapphirerapids");
  std::unique_ptr<llvm::MCSubtargetInfo> one(found->createMCSubtargetInfo(triple, cpu, ""));
  if (!one->checkFeatures("+64bit")) return codeError("'" + cpu + "' is a CPU without 64 bits");
  llvm::copy_if(runtime::cpuFeatures(), std::back_inserter(target.features),
                [&](const std::string &feature) { return one->checkFeatures("+" + feature); });
  return target;
}

llvm::Expected<std::string> buildSharedObject(llvm::Module &module, const Target &target) {
  auto machine = makeMachine(target);
  if (!machine) return machine.takeError();
  module.setTargetTriple(llvm::Triple(target.triple));
  module.setDataLayout((*machine)->createDataLayout());
  computeNarrowFloatsInSingle(module, llvm::is_contained(target.features, "f16c"));
  for (llvm::Function &function : module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("target-cpu", "x86-64");
    function.addFnAttr("tune-cpu", target.cpu);
    function.addFnAttr("target-features", listed(target));
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr(llvm::Attribute::NoUnwind);
    fillRegisters(function, (*machine)->getTargetTransformInfo(function));
  }
  optimize(module, **machine);
  llvm::SmallString<0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager emit;
  if ((*machine)->addPassesToEmitFile(emit, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return codeError("the code generator for " + target.triple + " writes no object files");
  emit.run(module);
  if (llvm::Error error = checkCalls(object)) return error;
  return link(object);
}

} // namespace cleave::codegen
