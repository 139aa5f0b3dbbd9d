#include "dialects/pass_manager.h"
#include "mlir/IR/AsmState.h"
#include "mlir/Support/Timing.h"
#include "llvm/Support/CommandLine.h"
#include <cstdlib>

namespace cleave {
using namespace mlir;

static constexpr const char *flagsVariable = "CLEAVE_MLIR";

static bool verifiesIr() {
#ifdef NDEBUG
  return std::getenv("CLEAVE_VERIFY_IR") != nullptr;
#else
  return true;
#endif
}

static void parseMlirFlags() {
  registerPassManagerCLOptions();
  registerDefaultTimingManagerCLOptions();
  registerAsmPrinterCLOptions();
  const char *program = "cleave";
  llvm::cl::ParseCommandLineOptions(1, &program, "", nullptr, nullptr, flagsVariable);
}

bool hasMlirFlags() { return std::getenv(flagsVariable) != nullptr; }

LogicalResult configure(PassManager &passes) {
  passes.enableVerifier(verifiesIr());
  if (!hasMlirFlags()) return success();
  static const bool isParsed = (parseMlirFlags(), true);
  (void)isParsed;
  applyDefaultTimingPassManagerCLOptions(passes);
  return applyPassManagerCLOptions(passes);
}

} // namespace cleave
