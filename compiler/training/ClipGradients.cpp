// ClipGradients: grad_norm is the L2 norm of all gradients together (a tied parameter is one parameter); with clip_norm
// every gradient is scaled by min(1, clip_norm / (grad_norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does; with
// clip_value every element is clipped to it, as clip_grad_value_ does. The
// groups of the recipe's `grad_norms` have a norm of their own, before clipping: grad_norm.attention.
#include "compiler/training/parameter_names.h"
#include "compiler/training/recipe_pass.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
namespace {

class ClipGradients : public RecipePass<ClipGradients> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ClipGradients)
  using RecipePass::RecipePass;
  StringRef getArgument() const final { return "clip-gradients"; }
  StringRef getDescription() const final { return "compute the gradient norm, and clip by it if the recipe says so"; }

  void runOnOperation() override {
    func::FuncOp final = findFunction(getOperation(), "final", "AccumulateGradients");
    if (!final) return signalPassFailure();
    PhaseBuilder builder(final, Phase::Update);
    Formula f(builder, NameLoc::get(builder.getStringAttr("grad_norm")));
    SymbolTable symbols(getOperation());
    std::vector<recipe::ParameterPatterns> groups;
    for (const recipe::NormGroup &group : recipe.gradNorms) groups.emplace_back(group.match);
    std::vector<SmallVector<Value>> squaresOf(groups.size());
    Type f32 = builder.getF32Type();
    SmallVector<StepResult> results = stepResults(final), finished;
    SmallVector<Value> squares;
    for (const StepResult &result : results) {
      if (!result.gradientOf) {
        finished.push_back(result);
        continue;
      }
      Formula at(builder, result.value.getLoc());
      Value grad = at.cast(result.value, f32);
      squares.push_back(at.total(at.mul(grad, grad)));
      if (groups.empty()) continue;
      auto param = symbols.lookup<onnx::ParamOp>(result.gradientOf.getValue());
      const recipe::ParameterNames names = namesOf(param->getAttrDictionary());
      for (auto [group, own] : llvm::zip_equal(groups, squaresOf))
        if (group.match(names)) own.push_back(squares.back());
    }
    if (squares.empty()) {
      final.emitError() << "has no gradients; BuildBackward must run before";
      return signalPassFailure();
    }
    Value norm = f.make<onnx::SqrtOp>(f.sum(squares)), factor;
    finished.push_back({"grad_norm", {}, norm});
    for (auto [group, own] : llvm::zip_equal(recipe.gradNorms, squaresOf)) {
      if (own.empty()) {
        final.emitError() << recipe.at("grad_norms") << ": no parameter of the group '" << group.name << "' trains";
        return signalPassFailure();
      }
      finished.push_back({"grad_norm." + group.name, {}, f.make<onnx::SqrtOp>(f.sum(own))});
    }
    if (recipe.clipNorm) {
      Value ratio = f.div(f.like(norm, *recipe.clipNorm), f.add(norm, f.like(norm, 1e-6)));
      factor = f.make<onnx::MinOp>(ratio, f.like(norm, 1));
    }
    for (StepResult &result : results) {
      if (!result.gradientOf) continue;
      if (factor) {
        Formula at(builder, result.value.getLoc());
        auto type = onnx::tensorType(result.value);
        result.value = at.mul(result.value, at.spread(at.cast(factor, type.getElementType()), type.getShape()));
      }
      if (recipe.clipValue) {
        Formula at(builder, result.value.getLoc());
        Value above = at.make<onnx::MaxOp>(result.value, at.like(result.value, -*recipe.clipValue));
        result.value = at.make<onnx::MinOp>(above, at.like(above, *recipe.clipValue));
      }
      finished.push_back(result);
    }
    setStepResults(final, finished);
  }
};

} // namespace

std::unique_ptr<Pass> createClipGradients(const recipe::Recipe &recipe) {
  return std::make_unique<ClipGradients>(recipe);
}
void registerClipGradients() { PassRegistration<ClipGradients>(); }

} // namespace cleave::training
