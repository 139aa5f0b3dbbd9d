#ifndef CLEAVE_ONNX_INTERFACES_TD
#define CLEAVE_ONNX_INTERFACES_TD
include "mlir/IR/OpBase.td"

// The facets of a core op. Shape is MLIR's InferTypeOpInterface; the other four are here. What is one
// expression stands with the op in OnnxCoreOps.td; the rest is in dialects/onnx/facets: elementwise.cpp, movement.cpp,
// those of products by facet, what costs arithmetic in cost.cpp, the scalar code of elementwise ops in lowering.cpp.

def FactorRuleOpInterface : OpInterface<"FactorRuleOpInterface"> {
  let cppNamespace = "::cleave::onnx";
  let description = "How the op can be split: see runtime/base/sharding/factor_rule.h.";
  let methods = [InterfaceMethod<"The factor rule at the op's (global) shapes.", "::cleave::dist::FactorRule",
                                 "getFactorRule", (ins)>];
}

def GradientOpInterface : OpInterface<"GradientOpInterface"> {
  let cppNamespace = "::cleave::onnx";
  let description = "Reverse-mode derivative.";
  let methods = [InterfaceMethod<[{
      Builds the gradients of the operands from those of the results. `resultGrads[i]` is null when result i has none.
      Fills `operandGrads` with one value an operand, null where there is none (integers, masks).
      Only operands with `wanted[i]` need one. Fails with emitOpError if the op has no derivative.
    }], "::llvm::LogicalResult", "buildGradient",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$resultGrads, "::llvm::ArrayRef<bool>":$wanted,
         "::llvm::SmallVectorImpl<::mlir::Value> &":$operandGrads)>];
}

def CostOpInterface : OpInterface<"CostOpInterface"> {
  let cppNamespace = "::cleave::onnx";
  let description = "What kind of operation it is, and the arithmetic of one execution at the op's shapes.";
  let methods = [
    InterfaceMethod<"Floating-point operations (a multiply-add counts 2).", "double", "getFlops", (ins)>,
    InterfaceMethod<"What it is beyond its factor rule: see runtime/base/sharding/operation_kind.h.",
                    "::cleave::dist::OperationKind", "getKind", (ins)>
  ];
}

def StridedViewOpInterface : OpInterface<"StridedViewOpInterface"> {
  let cppNamespace = "::cleave::onnx";
  let description = "Each element of the result is one of the operand, at a stride along each dimension.";
  let methods = [InterfaceMethod<"Where the operand is read.", "::cleave::onnx::StridedMap", "getStridedMap", (ins)>];
}

def LoweringOpInterface : OpInterface<"LoweringOpInterface"> {
  let cppNamespace = "::cleave::onnx";
  let description = "How code generation treats the op.";
  let methods = [
    InterfaceMethod<"The kind of code the op becomes.", "::cleave::onnx::LoweringKind", "getLoweringKind", (ins)>,
    InterfaceMethod<[{
        Elementwise ops: one result element from one element of each operand, as arith/math ops on scalars.
        Null for ops of other kinds.
      }], "::mlir::Value", "emitScalar",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc, "::mlir::ValueRange":$elements), "",
      "return ::mlir::Value();">
  ];
}
#endif
