// ONNX's own definitions of composite operators: a function body of simpler ones.
//
//   onnx.node "ReduceLogSumExp"(%x)   becomes the nodes of the body: ReduceMax, Sub, Exp, ReduceSum, Log ...
//
// NormalizeNodes takes a body only for operators it has no rule for.
#pragma once
#include "compiler/normalize/core_builder.h"

namespace onnx {
class TensorProto;
}

namespace cleave::normalize {

// Whether ONNX defines a body for the operator at that opset version (some need the node's types to say so: those
// count).
bool hasFunctionBody(const std::string &domain, const std::string &op, int64_t version);

// The operators of a body that does not depend on the node: domain, type, version. Empty for the others.
struct BodyOperator {
  std::string domain, op;
  int64_t version;
};
std::vector<BodyOperator> operatorsOfBody(const std::string &domain, const std::string &op, int64_t version);

// Puts the nodes of the body in front of `node`, whose operands are core values, and erases it. False: the operator has
// no body for these operands and attributes. Fails by throwing Failure.
bool expandFunctionBody(onnx::NodeOp node, mlir::OpBuilder &builder,
                        llvm::function_ref<mlir::Type(mlir::Value)> narrow);

// A tensor message whose data it holds itself; null for element types that are not supported.
mlir::DenseElementsAttr tensorAttribute(mlir::OpBuilder &builder, const ::onnx::TensorProto &proto);

} // namespace cleave::normalize
