#include "dialects/dist/Dist.h"
#include "llvm/ADT/TypeSwitch.h"

#include "dialects/dist/DistDialect.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/dist/DistAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/dist/DistOps.cpp.inc"

namespace cleave::dist {

void DistDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/dist/DistAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/dist/DistOps.cpp.inc"
      >();
}

llvm::LogicalResult ShardingAttr::verify(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
                                         llvm::StringRef layout) {
  Sharding parsed;
  std::string error;
  if (!Sharding::parse(layout.str(), parsed, error)) return emitError() << "bad sharding: " << error;
  return llvm::success();
}

void AllReduceOp::getEffects(
    llvm::SmallVectorImpl<mlir::SideEffects::EffectInstance<mlir::MemoryEffects::Effect>> &effects) {
  if (llvm::is_contained(getAxes().getAsValueRange<mlir::StringAttr>(), "pp"))
    effects.emplace_back(mlir::MemoryEffects::Write::get());
}

Sharding ShardingAttr::getSharding() const {
  Sharding parsed;
  std::string error;
  bool valid = Sharding::parse(getLayout().str(), parsed, error);
  (void)valid; // verified when the attribute was made
  return parsed;
}

ShardingAttr ShardingAttr::get(mlir::MLIRContext *context, const Sharding &sharding) {
  return get(context, llvm::StringRef(sharding.str()));
}

} // namespace cleave::dist
