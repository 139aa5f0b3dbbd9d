// Element types that no core operator knows: integers of 2 and 4 bits, floats of 4 and 8 bits. A tensor of them is one
// of bytes, its carrier: an integer's value, or a float's code. What moves elements moves carriers; what computes with
// them (Cast, QuantizeLinear, DequantizeLinear) decodes and encodes them. FunctionState::narrow says what is a carrier.
//
//   tensor<4xi4> -> tensor<4xi8>, the values        tensor<4xf8E5M2> -> tensor<4xui8>, the codes: 1.0 is 0x3c
#pragma once
#include "compiler/normalize/node.h"

namespace cleave::normalize {

bool isNarrow(mlir::Type element);
mlir::Type carrierOf(mlir::Type narrow);
mlir::DenseElementsAttr inCarrier(mlir::DenseElementsAttr value); // others as they are
int32_t onnxNumberOf(mlir::Type narrow);                          // TensorProto.DataType

// The smallest and largest number of a narrow integer type, or of one of 8 or 16 bits.
std::pair<double, double> rangeOf(mlir::Type integer);
double largestOf(mlir::Type narrowFloat);

// The carrier as what a node gives: notes its type.
mlir::Value asNarrow(Node &n, mlir::Value carrier, mlir::Type narrow);
// A carrier's numbers in a type that core operators know.
mlir::Value decoded(Node &n, mlir::Value carrier, mlir::Type narrow, mlir::Type to);
// Numbers as a carrier: floats round to the nearest (FLOAT8E8M0: as `rounding` says); integers lose what does not fit.
// A value beyond the largest number becomes that number (`saturate`), else infinity, else no number.
mlir::Value encoded(Node &n, mlir::Value x, mlir::Type narrow, bool saturate, llvm::StringRef rounding = "nearest");

} // namespace cleave::normalize
