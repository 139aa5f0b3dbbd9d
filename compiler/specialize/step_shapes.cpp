#include "compiler/specialize/step_shapes.h"
#include "dialects/onnx/Onnx.h"
#include "dialects/place/Place.h"
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
std::string regionOf(StringRef region, StringRef suffix) {
  auto [routine, rest] = region.split('.');
  return (routine + suffix + "." + rest).str();
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
    if (auto name = place::fragmentAttr.of(function)) place::fragmentAttr.set(function, (*name + suffix).str());
    if (auto region = place::regionAttr.of(function)) place::regionAttr.set(function, regionOf(*region, suffix));
    function->moveBefore(whole.getBody(), whole.getBody()->end());
  }
  SmallVector<Attribute> routines(place::routinesAttr.of(whole).getValue());
  for (auto routine : place::routinesAttr.of(other).getAsRange<DictionaryAttr>())
    routines.push_back(renamed(routine, suffix));
  place::routinesAttr.set(whole, builder.getArrayAttr(routines));
  return success();
}

} // namespace cleave
