// From an LLVM module to the bytes of an ELF shared object, all in this process: LLVM's O3 pipeline and code generator
// for the target CPU, then lld as a library.
#pragma once
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"
#include <string>

namespace cleave::codegen {

struct Target {
  std::string triple = {};   // empty: this machine's
  std::string cpu = {};      // an LLVM CPU name such as "znver4"; empty: this machine's, with exactly its features
  std::string features = {}; // LLVM's notation: "+avx512f,-amx-tile"
};

// Fills in what is empty, for this machine.
Target resolveTarget(Target target);

// LLVM's O3 pipeline for a machine, in place.
void optimize(llvm::Module &module, llvm::TargetMachine &machine);

// Optimizes the module for the (resolved) target and links it. Functions are exported under their names. Undefined
// symbols (libm's) are left for the program that loads the object.
llvm::Expected<std::string> buildSharedObject(llvm::Module &module, const Target &target);

} // namespace cleave::codegen
