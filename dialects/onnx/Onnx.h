// The onnx dialect: onnx.node, persistent tensors, and the core ops with their facets. See OnnxCoreOps.td.
#pragma once
#include "dialects/onnx/attributes.h"
#include "dialects/place/Place.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "runtime/base/attention_band.h"
#include "runtime/base/sharding/factor_rule.h"
#include "runtime/base/sharding/operation_kind.h"
#include <memory>
#include <mutex>

namespace cleave::onnx {
enum class LoweringKind : uint8_t {
  Fused,    // elementwise or reduction: part of a cluster that becomes one kernel
  View,     // no code: another look at the same bytes (Reshape)
  Movement, // a strided copy, unless a neighbour absorbs it (Transpose, Slice, Pad, Concat, Broadcast)
  Library,  // a command of its own (Contract, Conv, pools, Gather, ScatterAdd, CumSum)
  Constant
};
// Dimension d of a view's operand is read at starts[d] + steps[d] * i, i being the result's index along dims[d].
//
//   Transpose {perm = [1, 0]}       dims [1, 0]  starts [0, 0]  steps [1, 1]
//   Broadcast {dims = [2]}          dims [2]     starts [0]     steps [1]
//   Slice {starts [4], steps [2]}   dims [0]     starts [4]     steps [2]
struct StridedMap {
  llvm::SmallVector<int64_t> dims, starts, steps;
};
template <typename ConcreteOp> class PerElement : public mlir::OpTrait::TraitBase<ConcreteOp, PerElement> {};
} // namespace cleave::onnx

namespace mlir {
class FrozenRewritePatternSet;
class PatternRewriter;
} // namespace mlir

#include "dialects/onnx/OnnxDialect.h.inc"
#include "dialects/onnx/OnnxInterfaces.h.inc"
#define GET_OP_CLASSES
#include "dialects/onnx/OnnxOps.h.inc"

namespace cleave::onnx {
// The attribute of an onnx.node Gather that becomes onnx.Gather's padding_row.
inline constexpr llvm::StringLiteral paddingRowName = "padding_row";
// The one value of a splat of floats or integers; none for other attributes, and null.
std::optional<double> splatNumber(mlir::Attribute attribute);
} // namespace cleave::onnx
