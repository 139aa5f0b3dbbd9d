#include "dialects/owned_attribute.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace cleave {

bool isFunction(Operation *op) { return isa<FunctionOpInterface>(op); }
bool isModule(Operation *op) { return isa<ModuleOp>(op); }

LogicalResult verifyOwned(Operation *op, NamedAttribute attribute, ArrayRef<OwnedAttributeRule> rules) {
  const OwnedAttributeRule *known =
      llvm::find_if(rules, [&](const OwnedAttributeRule &rule) { return rule.name == attribute.getName(); });
  if (known == rules.end())
    return op->emitError() << "has an unknown attribute '" << attribute.getName().getValue() << "'";
  if (!known->isOfType(attribute.getValue()))
    return op->emitError() << "'" << attribute.getName().getValue() << "' is of another type: " << attribute.getValue();
  if (!known->mayStandOn(op))
    return op->emitError() << "'" << attribute.getName().getValue() << "' stands on " << known->place << " only";
  return success();
}

} // namespace cleave
