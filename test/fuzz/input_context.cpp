#include "test/fuzz/input_context.h"
#include <memory>

namespace cleave::fuzz {

mlir::MLIRContext &contextOfInput() {
  constexpr int inputsOfContext = 256;
  static std::unique_ptr<mlir::MLIRContext> context;
  static int inputs = 0;
  if (inputs++ % inputsOfContext == 0)
    context = std::make_unique<mlir::MLIRContext>(mlir::MLIRContext::Threading::DISABLED);
  return *context;
}

} // namespace cleave::fuzz
