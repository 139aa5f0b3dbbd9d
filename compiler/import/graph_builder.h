// Writes func.func @model and the onnx.param symbols of an opened, flattened and classified model.
#pragma once
#include "compiler/import/weights/optimizer_state.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::import_ {

// Errors: a value read before it is produced or produced twice, inputs and attributes of unsupported kinds.
Status buildModule(mlir::ModuleOp module, const ModelFile &model, const FlatGraph &flat, const ParameterTable &table,
                   const InitialWeights &initial, const std::optional<OptimizerState> &optimizer, TensorStore &store);

} // namespace cleave::import_
