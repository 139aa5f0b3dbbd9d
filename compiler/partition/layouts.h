// How a split is written on the IR between the passes of this folder:
//
//   module attributes {dist.mesh = #dist.mesh<"dp=2,tp=2">, dist.zero_axes = #dist.axes<[dp]>}
//   onnx.param @w : tensor<64x256xf32> "parameter" {sharding = #dist.sharding<"[{},{tp}]">, ...}
//   %y = onnx.Contract %x, %w {dist.factors = #dist.factors<[dp], [], [tp], []>,    one entry a factor of the op's rule
//                              dist.results = [#dist.sharding<"...">]}             one entry a result
//
// ApplyDecision writes the factors of forward ops, PropagateShardings completes them and adds the results' layouts,
// MaterializeCollectives removes both.
#pragma once
#include "dialects/dist/Dist.h"
#include "dialects/onnx/kinds.h"
#include "dialects/place/Place.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "runtime/base/sharding/factor_rule.h"

namespace cleave::partition {

using place::Phase;
using place::phaseOf;

mlir::ArrayAttr axesAttribute(mlir::MLIRContext *context, const dist::Axes &axes);
dist::Axes axesOf(mlir::Attribute attribute); // of an array of strings; empty for null
std::optional<dist::FactorSharding> factorsOf(mlir::Operation *op);

// The module's mesh; fails with an error that names the attribute.
llvm::FailureOr<dist::Mesh> meshOf(mlir::ModuleOp module);

llvm::SmallVector<int64_t> shapeOf(mlir::Value value);
inline double bytesOf(mlir::Type type) { return static_cast<double>(onnx::bytesOf(type)); }

// `layout` without the axes that do not divide their dimension evenly or that stand in it twice.
dist::Sharding fitted(const dist::Mesh &mesh, dist::Sharding layout, llvm::ArrayRef<int64_t> shape);
// A split without the axes that a factor cannot take.
dist::FactorSharding fitted(const dist::Mesh &mesh, const dist::FactorRule &rule, dist::FactorSharding split);
dist::Sharding without(dist::Sharding layout, const dist::Axes &axes);
bool contains(const dist::Axes &axes, const std::string &axis);
// Axes in the order of the mesh: partial axes have one spelling.
dist::Axes inMeshOrder(const dist::Mesh &mesh, dist::Axes axes);
double localBytes(const dist::Mesh &mesh, mlir::Type type, const dist::Sharding &layout);
// Bytes a device sends to turn `from` into `to`.
double reshardBytes(const dist::Mesh &mesh, mlir::Type type, const dist::Sharding &from, const dist::Sharding &to);

// The layout of a persistent tensor between steps; replicated unless `sharding` says otherwise.
dist::Sharding homeOf(const dist::Mesh &mesh, onnx::ParamOp param);

} // namespace cleave::partition
