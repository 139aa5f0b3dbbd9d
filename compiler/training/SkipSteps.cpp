// SkipSteps: a step whose gradients cannot be trusted leaves parameters and optimizer state as they were. In fp16 that
// is one whose gradients overflowed, and the loss scale follows (torch.amp.GradScaler.update):
//
//   finite    scale * growth after `interval` finite steps in a row, else the same
//   overflow  scale * backoff, the step counts as skipped
//
// With the recipe's `skip_outliers` it is one whose norm is above `factor` times its running mean, or none at all:
//
//   mean = decay mean + (1 - decay) min(norm, factor mean)           of every step, begun without a bias
//
// so that a norm that stays high becomes the usual one.
//
// The sign is the gradients' norm: it is infinite or NaN when any element is, and every device has it, so all decide
// alike without a word more. Results: loss_scale (fp16), as the next step will have it, and skipped, how many were so
// far.
#include "compiler/training/loss_scale.h"
#include "compiler/training/recipe_pass.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"
#include <limits>

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Persistent scalars of skip_outliers: decay's sums of norms and of ones, and the steps that they are of.
constexpr StringLiteral meanName = "outliers.mean", weightName = "outliers.weight", countName = "outliers.steps";

class SkipSteps : public RecipePass<SkipSteps> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SkipSteps)
  using RecipePass::RecipePass;
  StringRef getArgument() const final { return "skip-steps"; }
  StringRef getDescription() const final {
    return "no update where gradients overflowed or are unusual; adapt the loss scale";
  }

  void runOnOperation() override {
    func::FuncOp final = findFunction(getOperation(), "final", "AccumulateGradients");
    if (!final) return signalPassFailure();
    SmallVector<StepResult> results = stepResults(final);
    Value norm = namedResult(results, "grad_norm");
    if (!norm) {
      final.emitError() << "has no result grad_norm; ClipGradients must run before";
      return signalPassFailure();
    }
    PhaseBuilder builder(final, Phase::Update);
    Location loc = NameLoc::get(builder.getStringAttr(scaleName));
    Formula f(builder, loc);
    const bool isScaled = recipe.precision == recipe::Precision::Fp16;
    Value finite = f.make<onnx::LessOp>(norm, f.like(norm, infinity)), good = isScaled ? finite : Value();
    std::optional<Outliers> outliers;
    if (recipe.skipOutliers) {
      outliers = findOutliers(final, builder, norm, finite);
      good = good ? f.make<onnx::AndOp>(good, outliers->isUsual) : outliers->isUsual;
    }
    keepOld(final, builder, good);
    if (outliers)
      for (auto &[name, value] : outliers->state) write(builder, loc, name, value);
    if (isScaled) results.push_back({scaleName, {}, adaptScale(builder, finite)});
    if (!isScaled) define(final, skippedName);
    Value skipped = readScalar(builder, loc, skippedName);
    Value count = f.where(good, skipped, f.add(skipped, f.like(skipped, 1)));
    write(builder, loc, skippedName, count);
    results.push_back({"skipped", {}, count});
    setStepResults(final, results);
  }

private:
  static void write(OpBuilder &builder, Location loc, StringRef name, Value value) {
    onnx::WriteOp::create(builder, loc, FlatSymbolRefAttr::get(builder.getContext(), name), value);
  }

  void define(func::FuncOp final, StringRef name) {
    SymbolTable symbols(getOperation());
    addPersistent(final, symbols, name, RankedTensorType::get({}, Float32Type::get(&getContext())), "optimizer_state",
                  0);
  }

  // The scale of the next step.
  Value adaptScale(PhaseBuilder &builder, Value finite) {
    Location loc = NameLoc::get(builder.getStringAttr(scaleName));
    Formula f(builder, loc);
    Value scale = readScalar(builder, loc, scaleName), good = readScalar(builder, loc, goodStepsName);
    const recipe::LossScale &spec = recipe.lossScale;
    Value zero = f.like(good, 0), next = f.add(good, f.like(good, 1));
    Value grows = f.make<onnx::GreaterOrEqualOp>(next, f.like(good, static_cast<double>(spec.interval)));
    Value grown = f.scale(scale, spec.growth);
    grown = f.where(f.make<onnx::LessOp>(grown, f.like(grown, infinity)), grown, scale);
    Value adapted = f.where(finite, f.where(grows, grown, scale), f.scale(scale, spec.backoff));
    write(builder, loc, scaleName, adapted);
    write(builder, loc, goodStepsName, f.where(finite, f.where(grows, zero, next), zero));
    return adapted;
  }

  struct Outliers {
    Value isUsual;
    SmallVector<std::pair<StringRef, Value>> state; // as the step leaves it
  };
  Outliers findOutliers(func::FuncOp final, PhaseBuilder &builder, Value norm, Value finite) {
    const recipe::SkipOutliers &spec = *recipe.skipOutliers;
    for (StringRef name : {meanName, weightName, countName}) define(final, name);
    Location loc = NameLoc::get(builder.getStringAttr("outliers"));
    Formula f(builder, loc);
    Value mean = readScalar(builder, loc, meanName), weight = readScalar(builder, loc, weightName),
          count = readScalar(builder, loc, countName);
    Value isWarm = f.make<onnx::GreaterOrEqualOp>(count, f.like(count, static_cast<double>(spec.warmup)));
    Value most = f.div(f.scale(mean, spec.factor), f.make<onnx::MaxOp>(weight, f.like(weight, 1e-30)));
    most = f.where(isWarm, most, f.like(most, infinity));
    Value isLow = f.make<onnx::LessOrEqualOp>(norm, most);
    auto moved = [&](Value before, Value now) {
      Value after = f.add(f.scale(before, spec.decay), f.scale(now, 1 - spec.decay));
      return f.where(finite, after, before);
    };
    Value one = f.like(count, 1);
    Value isUsual = f.where(isWarm, isLow, f.make<onnx::EqualOp>(count, count));
    return {isUsual,
            {{meanName, moved(mean, f.where(isLow, norm, most))},
             {weightName, moved(weight, one)},
             {countName, f.where(finite, f.add(count, one), count)}}};
  }

  // The optimizer's results are written only where `good` is true. Running statistics are of the forward pass,
  // accumulators start anew in any case.
  void keepOld(func::FuncOp final, PhaseBuilder &builder, Value good) {
    SymbolTable symbols(getOperation());
    OpBuilder::InsertionGuard guard(builder);
    for (auto write : llvm::to_vector(final.getOps<onnx::WriteOp>())) {
      auto param = symbols.lookup<onnx::ParamOp>(write.getParamAttr().getAttr());
      if (!param || (param.getRole() != "parameter" && param.getRole() != "optimizer_state")) continue;
      write->moveBefore(final.front().getTerminator());
      builder.setInsertionPoint(write);
      Formula at(builder, write.getLoc());
      auto type = onnx::tensorType(write.getValue());
      Value old = onnx::ReadOp::create(builder, write.getLoc(), type, write.getParamAttr());
      write.getValueMutable().assign(at.where(at.spread(good, type.getShape()), write.getValue(), old));
    }
    builder.setInsertionPoint(final.front().getTerminator());
  }
};

} // namespace

std::unique_ptr<Pass> createSkipSteps(const recipe::Recipe &recipe) { return std::make_unique<SkipSteps>(recipe); }
void registerSkipSteps() { PassRegistration<SkipSteps>(); }

} // namespace cleave::training
