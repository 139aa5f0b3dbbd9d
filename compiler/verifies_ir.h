// Whether MLIR's verifier runs after every pass: in debug builds, and where CLEAVE_VERIFY_IR is set, as by test/run.
// Elsewhere each phase ends with a verifying pass of its own; verifying kernels again would take a third of their time.
#pragma once
#include <cstdlib>

namespace cleave {

inline bool verifiesIr() {
#ifdef NDEBUG
  return std::getenv("CLEAVE_VERIFY_IR") != nullptr;
#else
  return true;
#endif
}

} // namespace cleave
