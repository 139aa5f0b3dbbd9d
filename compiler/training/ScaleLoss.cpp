// ScaleLoss: of a training in fp16, the loss that is differentiated is "loss_scale" times the loss: small gradients of
// activations stay above the smallest number of fp16 (Micikevicius et al.: Mixed Precision Training, 2018). The loss
// that is reported stays itself.
//
//   %l = loss_sum          ->   %s = onnx.read @loss_scale;  result "scaled_loss" = %l * %s, for BuildBackward
//
// The scale is a persistent tensor, as are the finite steps since it last changed and the steps that were skipped:
// loss_scale (the recipe's `init`), loss_scale.good_steps, loss_scale.skipped. SkipOverflow changes them.
#include "compiler/training/loss_scale.h"
#include "compiler/training/recipe_pass.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"

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
  using RecipePass::RecipePass;
  StringRef getArgument() const final { return "scale-loss"; }
  StringRef getDescription() const final { return "differentiate a multiple of the loss, for fp16"; }

  void runOnOperation() override {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    SmallVector<StepResult> results = stepResults(model);
    Value loss = namedResult(results, "loss_sum");
    if (!loss) {
      model.emitError() << "has no result loss_sum; AttachLoss must run before";
      return signalPassFailure();
    }
    define(model, scaleName, recipe.lossScale.init);
    define(model, goodStepsName, 0);
    define(model, skippedName, 0);
    PhaseBuilder builder(model, Phase::Forward);
    Formula f(builder, NameLoc::get(builder.getStringAttr("loss")));
    Value scale = readScalar(builder, NameLoc::get(builder.getStringAttr("loss")), scaleName);
    results.push_back({"scaled_loss", {}, f.mul(loss, f.cast(scale, onnx::tensorType(loss).getElementType()))});
    setStepResults(model, results);
  }

private:
  void define(func::FuncOp model, StringRef name, double fill) {
    OpBuilder before(model);
    SymbolTable symbols(getOperation());
    auto type = RankedTensorType::get({}, before.getF32Type());
    symbols.insert(onnx::ParamOp::create(before, model.getLoc(), name, type, "optimizer_state", /*trainable=*/false,
                                         StringAttr(), IntegerAttr(), IntegerAttr(), TypeAttr(),
                                         before.getF64FloatAttr(fill), DictionaryAttr(), DenseI64ArrayAttr(),
                                         ArrayAttr(), StringAttr(), FlatSymbolRefAttr(), Attribute()));
  }
};

} // namespace

std::unique_ptr<Pass> createScaleLoss(const recipe::Recipe &recipe) { return std::make_unique<ScaleLoss>(recipe); }
void registerScaleLoss() { PassRegistration<ScaleLoss>(); }

} // namespace cleave::training
