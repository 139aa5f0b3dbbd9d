// Compiles the plan.kernel ops of a module to one shared object.
//
//   KernelOptions options{.cpu = "x86-64-v3"};
//   FailureOr<KernelLibrary> library = compileKernels(module, options);
//   plan.set_kernel_object(library->sharedObject);           // memfd_create + dlopen at run time
//   library->kernels[0].symbol                               // "layernorm_0": one a plan.kernel, in module order
//
// The kernels must have been through lower-kernels-to-linalg. The module is not changed.
#pragma once
#include "compiler/codegen/kernels/shared_object.h"
#include "mlir/IR/BuiltinOps.h"
#include "plan/plan.pb.h"
#include <string>
#include <vector>

namespace cleave::codegen {

struct KernelOptions {
  std::string cpu = "native";  // whose instructions they may use (resolveTarget)
  std::string dumpLlvmIr = {}; // a file for the LLVM IR before optimization; empty: none
};

struct CompiledKernel {
  std::string symbol; // void symbol(int64_t begin, int64_t end, void *const *buffers, const int64_t *scalars)
  int64_t numBuffers = 0, numScalars = 0;
  std::string description; // "add, gelu"
};

struct KernelLibrary {
  std::string sharedObject; // an ELF shared object; empty if there is no kernel
  Target target;
  std::vector<CompiledKernel> kernels;
};

llvm::FailureOr<KernelLibrary> compileKernels(mlir::ModuleOp module, const KernelOptions &options);

// Sets plan.operations: the block's core ops, as the function `name`.
mlir::LogicalResult recordOperations(mlir::Block &block, llvm::StringRef name, mlir::Operation *on);

// Writes what code was compiled for into the plan that holds it.
void setKernelTarget(plan::Plan &plan, const Target &target);

// The dialects and translations that compileKernels needs; call it on the context's registry.
void registerKernelDialects(mlir::DialectRegistry &registry);

} // namespace cleave::codegen
