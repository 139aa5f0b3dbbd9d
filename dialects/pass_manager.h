// How every pass manager of the compiler runs, by two variables of the environment:
//
//   CLEAVE_VERIFY_IR=1      MLIR's verifier after every pass, as in debug builds and in the tests; elsewhere each phase
//                           ends with a verifying pass, because verifying kernels again takes a third of their time
//   CLEAVE_MLIR="FLAGS"     MLIR's own flags (`cleave-opt --help`), such as
//                           --mlir-timing, --mlir-print-ir-after=form-clusters,
//                           --mlir-pass-pipeline-crash-reproducer=crash.mlir
#pragma once
#include "mlir/Pass/PassManager.h"

namespace cleave {

// Error, as a diagnostic: flags that do not fit together.
[[nodiscard]] llvm::LogicalResult configure(mlir::PassManager &passes);

// Whether CLEAVE_MLIR is set: then the passes that its flags name have to be registered before the first `configure`.
bool hasMlirFlags();

} // namespace cleave
