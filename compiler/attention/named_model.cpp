#include "compiler/attention/named_model.h"
#include "compiler/partition/layouts.h"

using namespace mlir;

namespace cleave::attention {

func::FuncOp namedModel(ModuleOp module) {
  auto model = module.lookupSymbol<func::FuncOp>("model");
  if (!model) {
    module.emitError("has no function @model: the normalize phase makes it");
    return nullptr;
  }
  for (const partition::NamedOperation &named : partition::forwardOperations(model))
    place::nodeAttr.set(named.op, named.name);
  return model;
}

} // namespace cleave::attention
