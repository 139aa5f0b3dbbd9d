// Compiles the plan.kernel ops of a module to one shared object.
//
//   KernelOptions options;                                   // this machine's CPU
//   FailureOr<KernelLibrary> library = compileKernels(module, options);
//   plan.set_kernel_object(library->sharedObject);           // memfd_create + dlopen at run time
//   library->kernels[0].symbol                               // "layernorm_0": one a plan.kernel, in module order
//
// The kernels must have been through lower-kernels-to-linalg. The module is not changed.
#pragma once
#include "compiler/codegen/kernels/shared_object.h"
#include "mlir/IR/BuiltinOps.h"
#include <string>
#include <vector>

namespace cleave::codegen {

struct KernelOptions {
  Target target;          // resolved by compileKernels
  std::string dumpLlvmIr; // a file for the LLVM IR before optimization; empty: none
};

struct CompiledKernel {
  std::string symbol; // void symbol(int64_t begin, int64_t end, void *const *buffers, const int64_t *scalars)
  int64_t numBuffers = 0, numScalars = 0;
  std::string description; // "add, gelu"
};

struct KernelLibrary {
  std::string sharedObject; // an ELF shared object; empty if there is no kernel
  std::string target;       // "x86_64/znver4": for Plan.kernel_target
  std::vector<CompiledKernel> kernels;
};

llvm::FailureOr<KernelLibrary> compileKernels(mlir::ModuleOp module, const KernelOptions &options);

// The dialects and translations that compileKernels needs; call it on the context's registry.
void registerKernelDialects(mlir::DialectRegistry &registry);

} // namespace cleave::codegen
