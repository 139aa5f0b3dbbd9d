// The dist dialect: layouts as attributes, reshards before, collectives after materialization. See DistOps.td.
#pragma once
#include "dialects/owned_attribute.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "runtime/base/sharding/factor_rule.h"
#include "runtime/base/sharding/sharding.h"

namespace cleave::dist {
inline llvm::raw_ostream &operator<<(llvm::raw_ostream &out, Collective kind) { return out << name(kind); }
inline llvm::raw_ostream &operator<<(llvm::raw_ostream &out, Reduction reduction) { return out << name(reduction); }
} // namespace cleave::dist

namespace mlir {
template <> struct FieldParser<cleave::dist::Collective> {
  static FailureOr<cleave::dist::Collective> parse(AsmParser &parser);
};
template <> struct FieldParser<cleave::dist::Reduction> {
  static FailureOr<cleave::dist::Reduction> parse(AsmParser &parser);
};
} // namespace mlir

#include "dialects/dist/DistDialect.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/dist/DistAttrs.h.inc"
#define GET_OP_CLASSES
#include "dialects/dist/DistOps.h.inc"

namespace cleave::dist {

// Discardable attributes of the dialect: how a split is written on the IR (compiler/partition/layouts.h).
// --- operations
inline constexpr OwnedAttribute<FactorsAttr> factorsAttr{"dist.factors"};
inline constexpr OwnedAttribute<mlir::ArrayAttr> resultsAttr{"dist.results"}; // the ShardingAttr of each result
// --- arguments
inline constexpr OwnedAttribute<ShardingAttr> layoutAttr{"dist.layout"};
// --- onnx.param: where its update and its optimizer state lie
inline constexpr OwnedAttribute<ShardingAttr> updateShardingAttr{"dist.update_sharding"};
// --- the module
inline constexpr OwnedAttribute<MeshAttr> meshAttr{"dist.mesh"};
inline constexpr OwnedAttribute<AxesAttr> zeroAxesAttr{"dist.zero_axes"}, batchAxesAttr{"dist.batch_axes"};
// The backward pass gathers again what the forward pass gathered.
inline constexpr OwnedAttribute<Mark> gathersAgainAttr{"dist.gathers_again"};
// --- collectives and transfers, and the commands made of them
inline constexpr OwnedAttribute<llvm::ArrayRef<std::string>> tensorsAttr{"dist.tensors"}; // what is moved, by name
inline constexpr OwnedAttribute<int64_t> orderAttr{"dist.order"};     // of sums over stages and transfers, as they run
inline constexpr OwnedAttribute<int64_t> channelAttr{"dist.channel"}; // of a pair of stages, and of a size of messages
inline constexpr OwnedAttribute<int64_t> crossesAttr{"dist.crosses"}; // not to the next stage: the earlier of the two
inline constexpr OwnedAttribute<int64_t> buffersAttr{"dist.buffers"}; // messages that may be on the way

} // namespace cleave::dist
