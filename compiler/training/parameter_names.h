// The names by which a recipe's patterns may call a parameter (recipe/glob.h).
#pragma once
#include "compiler/recipe/glob.h"
#include "dialects/onnx/Onnx.h"

namespace cleave::training {

// The names in the attributes of an onnx.param, or of a piece of a stacked one.
recipe::ParameterNames namesOf(mlir::DictionaryAttr param);

// The dictionaries of the parameters that an onnx.param is made of: its own, or those of its pieces.
llvm::SmallVector<mlir::DictionaryAttr> piecesOf(onnx::ParamOp param);

} // namespace cleave::training
