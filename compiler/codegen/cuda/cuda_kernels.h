// Compiles the plan.kernel ops of a module for GPUs: one PTX module, and the cubin that ptxas makes of it.
//
//   GpuKernels kernels(module, alignments);
//   kernels.build();                       // a gpu.func for each plan.kernel
//   kernels.all()[0].threads               // of a block; a launch has ceil(extent / grain) blocks
//   FailureOr<CudaLibrary> library = kernels.compile({.target = "sm_90"});
//   library->ptx, library->cubin           // cuModuleLoadData; cuModuleGetFunction(kernels.all()[0].symbol)
//
// The kernels must have been through lower-kernels-to-linalg and schedule-kernels for a GPU. The module is not changed.
#pragma once
#include "compiler/codegen/kernels/shared_object.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/StringMap.h"
#include <string>
#include <vector>

namespace cleave::codegen {

struct CudaOptions {
  std::string target;         // "sm_80", "sm_90", "sm_100"
  bool emulate = false;       // also make the kernels for an emulated grid on this machine's CPU (emulated_grid.h)
  bool assemble = true;       // run ptxas where there is one
  std::string cpu = "native"; // of the emulated grid (resolveTarget)
};

struct CudaKernel {
  std::string symbol;
  int64_t grain = 1;       // of a launch's extent, a block
  int64_t threads = 0;     // of a block
  int64_t sharedBytes = 0; // of a block
  int64_t buffers = 0;     // the first parameters; scalars and the extent follow
};

struct CudaLibrary {
  std::string ptx, cubin; // cubin: empty without ptxas
  std::string emulation;  // an ELF shared object of the CPU's kernel ABI, for emulationTarget
  Target emulationTarget;
};

// Least alignment of each buffer of a kernel over all its launches, bytes; kernels that are not in it are taken to get
// buffers as the arena aligns them.
using BufferAlignments = llvm::StringMap<llvm::SmallVector<int64_t>>;

class GpuKernels {
public:
  // `target`: whose shared memory they may use.
  explicit GpuKernels(mlir::ModuleOp module, BufferAlignments alignments = {}, llvm::StringRef target = "sm_80");
  // Adds the gpu.module to `target`; to a module of its own when none is given.
  mlir::LogicalResult build(mlir::ModuleOp target = {});
  // The plan.kernel of that number once more, for up to 2^steps launches at once (group_launches.h).
  mlir::LogicalResult buildGroup(int64_t number, llvm::StringRef symbol, int64_t steps);
  // Another kernel: its gpu.func is the caller's to add to the gpu.module.
  void add(CudaKernel kernel) { kernels.push_back(std::move(kernel)); }
  llvm::ArrayRef<CudaKernel> all() const { return kernels; } // plan.kernels in module order, then what was added
  mlir::gpu::GPUModuleOp gpuModule() const { return gpu; }
  // Does the target multiply matrices of bf16 and fp16 (mma.m16n8k16)?
  bool hasTensorCores() const { return tensorCores; }
  llvm::FailureOr<CudaLibrary> compile(const CudaOptions &options); // once: the gpu.module is used up

private:
  mlir::LogicalResult buildOne(plan::KernelOp kernel, llvm::StringRef symbol, std::optional<int64_t> groupSteps);

  mlir::ModuleOp module;
  BufferAlignments alignments;
  int64_t sharedLimit; // bytes of a block
  bool tensorCores;
  mlir::OwningOpRef<mlir::ModuleOp> own;
  mlir::gpu::GPUModuleOp gpu;
  std::vector<CudaKernel> kernels;
};

// The dialects and translations that GpuKernels needs.
void registerCudaDialects(mlir::DialectRegistry &registry);

} // namespace cleave::codegen
