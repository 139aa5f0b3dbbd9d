// A random function of core ops with persistent tensors, for the fuzz test: forward, backward and update ops, forward
// ones with random factor splits, persistent tensors and arguments with random layouts. The same seed, the same
// program.
#pragma once
#include "dialects/dist/Dist.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <random>

namespace cleave::partition {

struct ProgramOptions {
  dist::Mesh mesh;
  int operations = 30;
  bool decided = true; // forward ops get random factor splits
};

mlir::OwningOpRef<mlir::ModuleOp> randomProgram(mlir::MLIRContext &context, const ProgramOptions &options,
                                                std::mt19937 &random);

} // namespace cleave::partition
