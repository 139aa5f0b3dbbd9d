// onnx.Roll on one device's shapes: along a dimension of which every device holds one entry it is a message to a
// neighbour, along one that is whole two slices change places.
//
//   %y = onnx.Roll %x {dim = 0, distance = 1} : 4x8x16, dimension 0 over cp=4
//   ->  %y = dist.shift %x {axes = ["cp"], distance = 1} : 1x8x16
#pragma once
#include "compiler/partition/layouts.h"

namespace cleave::partition {

// All rolls of a function whose types are local already and whose splits are still written on it. Fails when a device
// holds several entries of a split dimension: such blocks would have to be cut.
llvm::LogicalResult materializeRolls(mlir::func::FuncOp function, const dist::Mesh &mesh);

} // namespace cleave::partition
