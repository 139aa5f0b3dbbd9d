#include "compiler/step_shapes.h"
#include "compiler/partition/stages.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
namespace cleave {
namespace {

LogicalResult checkParameters(ModuleOp whole, ModuleOp other) {
  SymbolTable known(whole);
  for (auto param : other.getOps<onnx::ParamOp>()) {
    auto same = known.lookup<onnx::ParamOp>(param.getSymName());
    if (!same || same->getAttrDictionary() != param->getAttrDictionary())
      return param.emitError()
             << "'" << param.getSymName()
             << "' is another tensor in a step of another shape: a plan for several lengths, or with a ramp, "
                "needs parameters that do not depend on it";
  }
  return success();
}

// "step.1" of the suffix "@128": "step@128.1". Slots of different routines share memory.
StringAttr regionOf(StringAttr region, StringRef suffix) {
  auto [routine, rest] = region.getValue().split('.');
  return StringAttr::get(region.getContext(), routine + suffix + "." + rest);
}

DictionaryAttr renamed(DictionaryAttr routine, StringRef suffix) {
  Builder builder(routine.getContext());
  SmallVector<Attribute> fragments;
  for (auto fragment : routine.getAs<ArrayAttr>("fragments").getAsRange<FlatSymbolRefAttr>())
    fragments.push_back(FlatSymbolRefAttr::get(builder.getStringAttr(fragment.getValue() + suffix)));
  NamedAttrList made(routine);
  made.set("fragments", builder.getArrayAttr(fragments));
  made.set("name", builder.getStringAttr(routine.getAs<StringAttr>("name").getValue() + suffix));
  return made.getDictionary(routine.getContext());
}

} // namespace

LogicalResult joinRoutines(ModuleOp whole, ModuleOp other, StringRef suffix) {
  if (failed(checkParameters(whole, other))) return failure();
  Builder builder(whole.getContext());
  for (auto function : llvm::make_early_inc_range(other.getOps<func::FuncOp>())) {
    if (function.getSymName() == "model") continue; // the functions made from it are what runs
    function.setSymName((function.getSymName() + suffix).str());
    if (auto name = function->getAttrOfType<StringAttr>(partition::fragmentAttr))
      function->setAttr(partition::fragmentAttr, builder.getStringAttr(name.getValue() + suffix));
    if (auto region = function->getAttrOfType<StringAttr>(partition::regionAttr))
      function->setAttr(partition::regionAttr, regionOf(region, suffix));
    function->moveBefore(whole.getBody(), whole.getBody()->end());
  }
  SmallVector<Attribute> routines(whole->getAttrOfType<ArrayAttr>(partition::routinesAttr).getValue());
  for (auto routine : other->getAttrOfType<ArrayAttr>(partition::routinesAttr).getAsRange<DictionaryAttr>())
    routines.push_back(renamed(routine, suffix));
  whole->setAttr(partition::routinesAttr, builder.getArrayAttr(routines));
  return success();
}

} // namespace cleave
