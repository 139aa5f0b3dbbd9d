// The names by which a recipe's patterns may call a parameter (recipe/glob.h).
#pragma once
#include "compiler/recipe/glob.h"
#include "mlir/IR/BuiltinAttributes.h"

namespace cleave::training {

// The names in the attributes of an onnx.param, or of a piece of a stacked one.
recipe::ParameterNames namesOf(mlir::DictionaryAttr param);

} // namespace cleave::training
