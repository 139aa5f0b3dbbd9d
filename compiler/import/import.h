// Reads an exported ONNX model into the onnx dialect. What is checked here never crashes later: every fault of the file
// is an error that names the file and the node or tensor.
//
//     mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> module = importModel(context, "mlp.onnx", {});
//
//     module attributes {onnx.path = "/models/mlp.onnx", onnx.ir_version = 10 : i64, onnx.opset = 20 : i64,
//                        onnx.ties = [...], onnx.notes = [...], onnx.missing_files = [...]} {
//       onnx.param @"0.weight" : tensor<64x20xf32> "parameter" {trainable = true, path = "", offset = 201 : i64,
//           length = 5120 : i64, used_by = "node_linear", onnx.nodes = ["node_linear"], onnx.why = "..."}
//       func.func @model(%arg0: tensor<?x20xf32> {onnx.name = "input", onnx.dims = ["batch", ""]})
//           -> (tensor<?x10xf32> {onnx.name = "logits"}) {
//         %0 = onnx.read @"0.weight" : tensor<64x20xf32>
//         %1 = onnx.node "Gemm"(%arg0, %0, ...) ... } }
//
// - Calls of model-local functions are inlined (flatten.h), Identity of an initializer disappears, Constant nodes are
//   onnx.Constant. A value whose type the file does not tell is tensor<*xindex>.
// - A dimension without a number has the name "INPUT.AXIS" in onnx.dims unless the model names it.
// - Reads and constants stand at the start of @model. What an initializer becomes: parameters.h.
// - If, Loop, Scan keep their bodies as regions of onnx.node; onnx_attributes maps each graph attribute's name to the
//   number of its region (i64); a body ends with an onnx.node "yield" of domain "cleave".
#pragma once
#include "compiler/import/weights/parameters.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/LogicalResult.h"

namespace cleave::import_ {

// Emits the error to the context's diagnostics. Loads the dialects it needs.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> importModel(mlir::MLIRContext &context, const std::string &path,
                                                               const ImportOptions &options = {});

// What the model says of its own training; none if it does not. Error: the model's.
Result<std::optional<recipe::ModelTraining>> trainingOf(const std::string &path);

// The recipe with what the model says of its own training (recipe/model_training.h), which it leaves open; `notes` says
// what was taken. Error: the model's, or a recipe without a loss for a model that says nothing.
Status completeRecipe(const std::string &path, recipe::Recipe &recipe, std::vector<std::string> &notes);

} // namespace cleave::import_
