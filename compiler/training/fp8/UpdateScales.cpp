// UpdateScales: at the end of a step in fp8 with delayed scaling, the amax of each quantized tensor (of all
// microbatches and devices) enters its history, and its scale becomes that of the history's largest (scales.h).
// What is no number, infinite or 0 throughout leaves the scale as it is.
//
//   result "fp8.amax.input/W" = %a   ->   %h = concat [%a], first of onnx.read @"fp8.history.input/W"
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
    SmallVector<StepResult> others;
    for (const StepResult &result : stepResults(final)) {
      StringRef tensor = result.name;
      if (tensor.consume_front(amaxPrefix))
        update(builder, tensor, result.value);
      else
        others.push_back(result);
    }
    setStepResults(final, others);
  }

private:
  void update(OpBuilder &builder, StringRef tensor, Value amax) {
    Location loc = NameLoc::get(builder.getStringAttr("fp8"));
    Formula f(builder, loc);
    auto symbol = [&](StringRef prefix) {
      return FlatSymbolRefAttr::get(builder.getContext(), (prefix + tensor).str());
    };
    Value isFinite = f.make<onnx::LessOp>(amax, f.like(amax, std::numeric_limits<double>::infinity()));
    Value history = f.make<onnx::ReshapeOp>(f.where(isFinite, amax, f.like(amax, 0)), ArrayRef<int64_t>{1});
    const int64_t kept = recipe.fp8.history - 1;
    if (kept > 0) {
      auto type = RankedTensorType::get({recipe.fp8.history}, builder.getF32Type());
      Value before = onnx::ReadOp::create(builder, loc, type, symbol(historyPrefix));
      Value latest = f.make<onnx::SliceOp>(before, ArrayRef<int64_t>{0}, ArrayRef<int64_t>{kept}, ArrayRef<int64_t>{1});
      history = f.make<onnx::ConcatOp>(ValueRange{history, latest}, int64_t(0));
    }
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
