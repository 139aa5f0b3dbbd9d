// From an LLVM module of GPU kernels to PTX, and from PTX to a cubin with NVIDIA's assembler, where there is one: the
// program in the environment variable CLEAVE_PTXAS, the one `./dev` installed, or the one on the PATH.
#pragma once
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include <optional>
#include <string>

namespace cleave::codegen {

// Optimizes the module for `target` ("sm_90"), and links libdevice where it is called.
llvm::Expected<std::string> toPtx(llvm::Module &module, const std::string &target);

std::optional<std::string> findPtxas(); // a path
llvm::Expected<std::string> assemblePtx(const std::string &ptx, const std::string &target);

} // namespace cleave::codegen
