// The model that attention is looked for in.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::attention {

// @model, whose operations keep from now on the names under which the planner knows them, whatever disappears around
// them. Null, with an error at the module, where there is none.
mlir::func::FuncOp namedModel(mlir::ModuleOp module);

} // namespace cleave::attention
