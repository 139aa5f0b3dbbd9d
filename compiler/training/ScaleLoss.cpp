// ScaleLoss: of a training in fp16, the loss that is differentiated is "loss_scale" times the loss: small gradients of
// activations stay above the smallest number of fp16 (Micikevicius et al.: Mixed Precision Training, 2018). The loss
// that is reported stays itself.
//
//   %l = loss_sum          ->   %s = onnx.read @loss_scale;  result "scaled_loss" = %l * %s, for BuildBackward
//
// A mean whose weight is known only when all microbatches are done is differentiated as a sum (AccumulateGradients
// divides): it is scaled by the number of labels, too, so that the scale means the same whatever the microbatches. The
// module attribute onnx.loss_factor tells UnscaleGradients.
//
// The scale is a persistent tensor, as are the finite steps since it last changed and the steps that were skipped:
// loss_scale (the recipe's `init`), loss_scale.good_steps, loss_scale.skipped. SkipSteps changes them.
#include "compiler/training/loss_scale.h"
#include "compiler/training/recipe_pass.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"
#include <cmath>

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {

Value readScalar(OpBuilder &builder, Location loc, StringRef name) {
  auto type = RankedTensorType::get({}, builder.getF32Type());
  return onnx::ReadOp::create(builder, loc, type, FlatSymbolRefAttr::get(builder.getContext(), name)).getValue();
}

namespace {

class ScaleLoss : public RecipePass<ScaleLoss> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ScaleLoss)
  ScaleLoss() = default;
  ScaleLoss(const recipe::Recipe &recipe, const TrainingOptions &options) : RecipePass(recipe) {
    microbatches = options.microbatches;
    pipeline = options.pipeline;
  }
  ScaleLoss(const ScaleLoss &other) : RecipePass(other) {
    microbatches = other.microbatches.getValue();
    pipeline = other.pipeline.getValue();
  }
  StringRef getArgument() const final { return "scale-loss"; }
  StringRef getDescription() const final { return "differentiate a multiple of the loss, for fp16"; }

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

  Option<int64_t> microbatches{*this, "microbatches", llvm::cl::desc("microbatches of a step"), llvm::cl::init(1)};
  Option<bool> pipeline{*this, "pipeline", llvm::cl::desc("to be cut in stages"), llvm::cl::init(false)};

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

std::unique_ptr<Pass> createScaleLoss(const recipe::Recipe &recipe, const TrainingOptions &options) {
  return std::make_unique<ScaleLoss>(recipe, options);
}
void registerScaleLoss() { PassRegistration<ScaleLoss>(); }

} // namespace cleave::training
