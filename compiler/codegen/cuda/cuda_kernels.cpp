#include "compiler/codegen/cuda/cuda_kernels.h"
#include "compiler/codegen/cuda/emulated_grid.h"
#include "compiler/codegen/cuda/gpu_to_llvm.h"
#include "compiler/codegen/cuda/ptx.h"
#include "llvm/Transforms/Utils/Cloning.h"

using namespace mlir;
namespace cleave::codegen {

FailureOr<CudaLibrary> GpuKernels::compile(const CudaOptions &options) {
  CudaLibrary library;
  if (kernels.empty() && !options.emulate) return library;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = gpuToLlvm(gpu, context);
  if (!code) return module.emitError("the GPU kernels could not be lowered to LLVM IR");
  auto fail = [&](llvm::Error error) { return module.emitError() << llvm::toString(std::move(error)); };
  if (options.emulate) { // of no kernels, too: the runtime knows by it that the plan can run on this CPU
    llvm::Expected<Target> host = resolveTarget(options.cpu);
    if (!host) return fail(host.takeError());
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(*code);
    emulateGrid(*copy, kernels);
    llvm::Expected<std::string> object = buildSharedObject(*copy, *host);
    if (!object) return fail(object.takeError());
    library.emulation = std::move(*object);
    library.emulationTarget = *host;
  }
  if (kernels.empty()) return library;
  llvm::Expected<std::string> ptx = toPtx(*code, options.target);
  if (!ptx) return fail(ptx.takeError());
  library.ptx = std::move(*ptx);
  if (!options.assemble || !findPtxas()) return library;
  llvm::Expected<std::string> cubin = assemblePtx(library.ptx, options.target);
  if (!cubin) return fail(cubin.takeError());
  library.cubin = std::move(*cubin);
  return library;
}

} // namespace cleave::codegen
