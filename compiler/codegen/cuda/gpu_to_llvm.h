// From a gpu.module to an LLVM module for NVPTX, through the nvvm dialect. Calls of libdevice (__nv_sinf) are left
// open.
#pragma once
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/IR/Module.h"

namespace cleave::codegen {

// Null, with a diagnostic, when something has no lowering. Changes the gpu.module.
std::unique_ptr<llvm::Module> gpuToLlvm(mlir::gpu::GPUModuleOp module, llvm::LLVMContext &context);

} // namespace cleave::codegen
