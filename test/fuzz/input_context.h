// The context in which inputs become IR. Many inputs share one: to load the dialects takes longer than most inputs do.
#pragma once
#include "mlir/IR/MLIRContext.h"

namespace cleave::fuzz {

// To be asked for once an input. Now and then it is another one, so that what a context keeps of its inputs stays
// small.
mlir::MLIRContext &contextOfInput();

} // namespace cleave::fuzz
