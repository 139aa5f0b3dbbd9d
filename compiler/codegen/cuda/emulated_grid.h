// Turns GPU kernels, as LLVM IR before it becomes PTX, into functions of the CPU's kernel ABI that run the same code
// for every thread of every block (runtime/engine/device/emulation): so a machine without a GPU tests the very code of
// the GPU.
//
//   define ptx_kernel void @k0(ptr addrspace(1), ..., i64 extent)
//   ->  define void @k0(i64 begin, i64 end, ptr buffers, ptr scalars)      blocks begin / grain ... ceil(end / grain)
//
// Thread and block numbers, barriers, shuffles and the address of shared memory become calls through the table
// @cleave_grid_services, which the program that loads the code fills in. Every access to shared memory is told there
// first, so that races are found. libdevice's functions become libm's.
#pragma once
#include "compiler/codegen/cuda/cuda_kernels.h"
#include "llvm/IR/Module.h"

namespace cleave::codegen {

void emulateGrid(llvm::Module &module, const std::vector<CudaKernel> &kernels);

} // namespace cleave::codegen
