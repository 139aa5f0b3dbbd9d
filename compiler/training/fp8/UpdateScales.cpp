// UpdateScales: at the end of a step in fp8 with delayed scaling, the amax of each quantized tensor (of all
// microbatches and devices) takes the place of the oldest in its history, and its scale becomes that of the history's
// largest (scales.h). A largest that is no number, infinite or 0 leaves the scale as it is.
//
//   result "fp8.amax.input/W" = %a   ->   %h = onnx.read @"fp8.history.input/W", but for %a at onnx.read @fp8.position
//                                         write @"fp8.history.input/W", %h
//                                         write @"fp8.scale.input/W", 448 / 2^margin / max(%h)
//
// An amax that is no number enters as 0: it says nothing of the next steps.
#include "compiler/training/fp8/scales.h"
#include "compiler/training/recipe_pass.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
namespace {

class UpdateScales : public RecipePass<UpdateScales> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(UpdateScales)
  using RecipePass::RecipePass;
  StringRef getArgument() const final { return "update-scales"; }
  StringRef getDescription() const final { return "the scales of fp8 for the next step"; }

  void runOnOperation() override {
    func::FuncOp final = findFunction(getOperation(), "final", "AccumulateGradients");
    if (!final) return signalPassFailure();
    PhaseBuilder builder(final, Phase::Update);
    Location loc = NameLoc::get(builder.getStringAttr("fp8"));
    Formula f(builder, loc);
    SmallVector<StepResult> others;
    Value isOldest;
    for (const StepResult &result : stepResults(final)) {
      StringRef tensor = result.name;
      if (!tensor.consume_front(amaxPrefix)) {
        others.push_back(result);
        continue;
      }
      if (!isOldest) isOldest = oldestPlace(final, builder, f);
      update(builder, f, tensor, result.value, isOldest);
    }
    setStepResults(final, others);
  }

private:
  RankedTensorType historyType(Builder &builder) {
    return RankedTensorType::get({recipe.fp8.history}, builder.getF32Type());
  }

  // True at one place of every history; the next step's is the one behind it.
  Value oldestPlace(func::FuncOp final, OpBuilder &builder, Formula &f) {
    auto scalar = RankedTensorType::get({}, builder.getF32Type());
    SymbolTable symbols(getOperation());
    addPersistent(final, symbols, positionName, scalar, "optimizer_state", 0);
    auto symbol = FlatSymbolRefAttr::get(builder.getContext(), positionName);
    Location loc = NameLoc::get(builder.getStringAttr("fp8"));
    Value position = onnx::ReadOp::create(builder, loc, scalar, symbol), next = f.add(position, f.like(position, 1));
    Value isInside = f.make<onnx::LessOp>(next, f.like(next, static_cast<double>(recipe.fp8.history)));
    onnx::WriteOp::create(builder, loc, symbol, f.only(isInside, next));
    Value place = f.make<onnx::IotaOp>(historyType(builder), TypeAttr::get(historyType(builder)),
                                       builder.getI64IntegerAttr(0), ArrayAttr());
    return f.make<onnx::EqualOp>(place, f.spread(position, {recipe.fp8.history}));
  }

  void update(OpBuilder &builder, Formula &f, StringRef tensor, Value amax, Value isOldest) {
    Location loc = NameLoc::get(builder.getStringAttr("fp8"));
    auto symbol = [&](StringRef prefix) {
      return FlatSymbolRefAttr::get(builder.getContext(), (prefix + tensor).str());
    };
    Value latest = f.only(f.make<onnx::LessOp>(amax, f.like(amax, std::numeric_limits<double>::infinity())), amax);
    Value history = onnx::ReadOp::create(builder, loc, historyType(builder), symbol(historyPrefix));
    history = f.where(isOldest, f.spread(latest, {recipe.fp8.history}), history);
    onnx::WriteOp::create(builder, loc, symbol(historyPrefix), history);
    Value old = onnx::ReadOp::create(builder, loc, amax.getType(), symbol(scalePrefix));
    Value largest = f.make<onnx::ReduceMaxOp>(history, ArrayRef<int64_t>{0});
    onnx::WriteOp::create(builder, loc, symbol(scalePrefix), scaleOf(f, largest, tensor, recipe.fp8.margin, old));
  }
};

} // namespace

std::unique_ptr<Pass> createUpdateScales(const recipe::Recipe &recipe) {
  return std::make_unique<UpdateScales>(recipe);
}
void registerUpdateScales() { PassRegistration<UpdateScales>(); }

} // namespace cleave::training
