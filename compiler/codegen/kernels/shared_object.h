// From an LLVM module to the bytes of an ELF shared object, all in this process: LLVM's O3 pipeline and code generator
// for the target CPU, then lld as a library.
//
//   auto target = resolveTarget("x86-64-v3");
//   auto object = buildSharedObject(module, *target);     // for dlopen
#pragma once
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"
#include <string>
#include <vector>

namespace cleave::codegen {

// A CPU whose instructions code may use: those of runtime/base/cpu_features.h that it has, and no others.
struct Target {
  std::string triple;
  std::string cpu; // whose timings the code is tuned for: "znver4", "x86-64-v3"
  std::vector<std::string> features;
};

// The target that `cpu` names: "native" (this machine), "x86-64-v3", or another name that LLVM knows. Error: an unknown
// name.
llvm::Expected<Target> resolveTarget(const std::string &cpu = "native");

// LLVM's O3 pipeline for a machine, in place.
void optimize(llvm::Module &module, llvm::TargetMachine &machine);

// Optimizes the module for the target and links it. Functions are exported under their names. Undefined symbols of libm
// are left for the program that loads the object; others are an error, since not every system has them.
llvm::Expected<std::string> buildSharedObject(llvm::Module &module, const Target &target);

} // namespace cleave::codegen
