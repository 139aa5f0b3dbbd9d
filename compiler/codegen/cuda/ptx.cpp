#include "compiler/codegen/cuda/ptx.h"
#include "compiler/codegen/kernels/shared_object.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/IPO/Internalize.h"
#include <cstdlib>
#include <mutex>

namespace cleave::codegen {
namespace {

constexpr llvm::StringLiteral libdevicePrefix = "__nv_";

llvm::Error ptxError(const llvm::Twine &what) { return llvm::createStringError(llvm::inconvertibleErrorCode(), what); }

llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machineFor(const std::string &target) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found) return ptxError("this LLVM has no code generator for NVIDIA's GPUs: " + error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard; // operations marked `contract` become fused multiply-adds
  std::unique_ptr<llvm::TargetMachine> machine(found->createTargetMachine(
      triple, target, "", options, std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  if (!machine) return ptxError("no code generator for " + target);
  return machine;
}

// The functions of libdevice that the module calls become part of it.
llvm::Error linkLibdevice(llvm::Module &module) {
  bool calls = false;
  for (llvm::Function &function : module)
    calls |= function.isDeclaration() && function.getName().starts_with(libdevicePrefix);
  if (!calls) return llvm::Error::success();
  std::optional<std::string> ptxas = findPtxas();
  if (!ptxas)
    return ptxError(
        "the model needs a function of NVIDIA's libdevice (sine, cosine, a power with a variable exponent), "
        "which comes with ptxas: run `./dev build` once, or set CLEAVE_PTXAS to the ptxas of a CUDA toolkit");
  llvm::SmallString<128> real, path;
  if (llvm::sys::fs::real_path(*ptxas, real)) real = *ptxas;
  path = llvm::sys::path::parent_path(llvm::sys::path::parent_path(real));
  llvm::sys::path::append(path, "nvvm", "libdevice", "libdevice.10.bc");
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> library = llvm::parseIRFile(path, diagnostic, module.getContext());
  if (!library) return ptxError("cannot read " + path.str() + ": " + diagnostic.getMessage());
  library->setTargetTriple(module.getTargetTriple());
  library->setDataLayout(module.getDataLayout());
  llvm::StringSet<> own;
  for (llvm::Function &function : module)
    if (!function.isDeclaration()) own.insert(function.getName());
  if (llvm::Linker::linkModules(module, std::move(library), llvm::Linker::LinkOnlyNeeded))
    return ptxError("libdevice could not be linked");
  for (llvm::Function &function : module)
    if (!function.isDeclaration() && !own.contains(function.getName()))
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
  return llvm::Error::success();
}

} // namespace

llvm::Expected<std::string> toPtx(llvm::Module &module, const std::string &target) {
  auto machine = machineFor(target);
  if (!machine) return machine.takeError();
  module.setTargetTriple(llvm::Triple("nvptx64-nvidia-cuda"));
  module.setDataLayout((*machine)->createDataLayout());
  if (llvm::Error error = linkLibdevice(module)) return std::move(error);
  for (llvm::Function &function : module)
    if (!function.isDeclaration()) function.addFnAttr(llvm::Attribute::NoUnwind);
  optimize(module, **machine);
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager emit;
  if ((*machine)->addPassesToEmitFile(emit, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return ptxError("the code generator for " + target + " writes no PTX");
  emit.run(module);
  return text.str().str();
}

std::optional<std::string> findPtxas() {
  if (const char *given = std::getenv("CLEAVE_PTXAS"); given && *given) return std::string(given);
  if (llvm::sys::fs::can_execute(CLEAVE_PTXAS_PATH)) return std::string(CLEAVE_PTXAS_PATH);
  if (auto found = llvm::sys::findProgramByName("ptxas")) return *found;
  return std::nullopt;
}

llvm::Expected<std::string> assemblePtx(const std::string &ptx, const std::string &target) {
  std::optional<std::string> program = findPtxas();
  if (!program) return ptxError("ptxas was not found");
  llvm::SmallString<128> input, output, log;
  for (auto [path, suffix] : {std::pair{&input, "ptx"}, std::pair{&output, "cubin"}, std::pair{&log, "log"}})
    if (std::error_code code = llvm::sys::fs::createTemporaryFile("cleave-kernels", suffix, *path))
      return ptxError("no temporary file for GPU code: " + code.message());
  llvm::FileRemover removeInput(input), removeOutput(output), removeLog(log);
  {
    std::error_code code;
    llvm::raw_fd_ostream stream(input, code);
    if (!code) stream << ptx;
    stream.close();
    if (!code) code = stream.error();
    stream.clear_error();
    if (code) return ptxError("cannot write " + input.str() + ": " + code.message());
  }
  std::string architecture = "-arch=" + target;
  llvm::StringRef arguments[] = {*program, architecture, "-O3", input, "-o", output};
  std::optional<llvm::StringRef> redirects[] = {std::nullopt, log.str(), log.str()};
  std::string error;
  int status = llvm::sys::ExecuteAndWait(*program, arguments, std::nullopt, redirects, 0, 0, &error);
  auto bytes = llvm::MemoryBuffer::getFile(status == 0 ? output : log, /*IsText=*/false);
  std::string text = bytes ? (*bytes)->getBuffer().str() : "";
  if (status != 0)
    return ptxError(*program + " failed for " + target + ": " + error + llvm::StringRef(text).take_front(2000));
  return text;
}

} // namespace cleave::codegen
