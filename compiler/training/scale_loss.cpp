#include "compiler/training/loss_scale.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"
#include <cmath>

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
#define GEN_PASS_DEF_SCALELOSS
#include "compiler/training/Passes.h.inc"

Value readScalar(OpBuilder &builder, Location loc, StringRef name) {
  auto type = RankedTensorType::get({}, builder.getF32Type());
  return onnx::ReadOp::create(builder, loc, type, FlatSymbolRefAttr::get(builder.getContext(), name)).getValue();
}

namespace {

class ScaleLoss : public impl::ScaleLossBase<ScaleLoss> {
public:
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    SmallVector<StepResult> results = stepResults(model);
    Value loss = lossSum(model, results);
    if (!loss) return signalPassFailure();
    define(model, scaleName, recipe.lossScale.init);
    define(model, goodStepsName, 0);
    define(model, skippedName, 0);
    PhaseBuilder builder(model, Phase::Forward);
    Formula f(builder, NameLoc::get(builder.getStringAttr("loss")));
    Value scale = readScalar(builder, NameLoc::get(builder.getStringAttr("loss")), scaleName);
    Value scaled = f.mul(f.cast(loss, builder.getF32Type()), scale); // of a float64 model, too: the scale is persistent
    if (double factor = factorOf(model, namedResult(results, "loss_weight")); factor != 1) {
      scaled = f.scale(scaled, factor);
      onnx::lossFactorAttr.set(getOperation(), factor);
    }
    results.push_back({"scaled_loss", {}, scaled});
    setStepResults(model, results);
  }

private:
  // A power of two, at most 1 / the labels of a step; 1 where BuildBackward divides by the weight itself.
  double factorOf(func::FuncOp model, Value weight) {
    bool known = !weight || weight.getDefiningOp<onnx::ConstantOp>();
    if (known || (microbatches == 1 && !pipeline)) return 1;
    int64_t labels = 1;
    for (BlockArgument argument : model.getArguments())
      if (onnx::labelAttr.of(model, argument.getArgNumber()))
        labels = std::max(labels, cast<RankedTensorType>(argument.getType()).getNumElements());
    return std::exp2(-std::ceil(std::log2(static_cast<double>(labels * microbatches))));
  }

  void define(func::FuncOp model, StringRef name, double fill) {
    SymbolTable symbols(getOperation());
    addPersistent(model, symbols, name, RankedTensorType::get({}, Float32Type::get(&getContext())), "optimizer_state",
                  fill);
  }
};

} // namespace

} // namespace cleave::training
