#include "compiler/training/loss_scale.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"
#include <limits>

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
#define GEN_PASS_DEF_SKIPSTEPS
#include "compiler/training/Passes.h.inc"

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Persistent scalars of skip_outliers: the decayed sum of norms, the decayed sum of ones that divides it (bias
// correction), and the number of steps in both.
constexpr StringLiteral meanName = "outliers.mean", weightName = "outliers.weight", countName = "outliers.steps";

class SkipSteps : public impl::SkipStepsBase<SkipSteps> {
public:
  using Base::Base;
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
    Value finite = f.make<onnx::LessOp>(norm, f.like(norm, infinity)), isApplied = isScaled ? finite : Value();
    std::optional<Outliers> outliers;
    if (recipe.skipOutliers) {
      outliers = findOutliers(final, builder, norm, finite);
      isApplied = isApplied ? f.make<onnx::AndOp>(isApplied, outliers->isUsual) : outliers->isUsual;
    }
    applyUpdateWhere(final, builder, isApplied);
    if (outliers)
      for (auto &[name, value] : outliers->state) write(builder, loc, name, value);
    if (isScaled) results.push_back({scaleName, {}, adaptScale(builder, finite)});
    if (!isScaled) define(final, skippedName); // in fp16 ScaleLoss has defined it
    Value skipped = readScalar(builder, loc, skippedName);
    Value count = f.where(isApplied, skipped, f.add(skipped, f.like(skipped, 1)));
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
    Value scale = readScalar(builder, loc, scaleName), goodSteps = readScalar(builder, loc, goodStepsName);
    const recipe::LossScale &spec = recipe.lossScale;
    Value zero = f.like(goodSteps, 0), next = f.add(goodSteps, f.like(goodSteps, 1));
    Value grows = f.make<onnx::GreaterOrEqualOp>(next, f.like(goodSteps, static_cast<double>(spec.interval)));
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
    Value maxNorm = f.div(f.scale(mean, spec.factor), f.make<onnx::MaxOp>(weight, f.like(weight, 1e-30)));
    maxNorm = f.where(isWarm, maxNorm, f.like(maxNorm, infinity));
    Value isLow = f.make<onnx::LessOrEqualOp>(norm, maxNorm);
    auto updatedAverage = [&](Value before, Value now) {
      Value after = f.add(f.scale(before, spec.decay), f.scale(now, 1 - spec.decay));
      return f.where(finite, after, before);
    };
    Value one = f.like(count, 1);
    Value isUsual = f.where(isWarm, isLow, f.make<onnx::EqualOp>(count, count));
    return {isUsual,
            {{meanName, updatedAverage(mean, f.where(isLow, norm, maxNorm))},
             {weightName, updatedAverage(weight, one)},
             {countName, f.where(finite, f.add(count, one), count)}}};
  }

  // Writes parameters and optimizer state only where `isApplied` is true. Running statistics belong to the forward
  // pass, and gradient accumulators start from zero in any case.
  void applyUpdateWhere(func::FuncOp final, PhaseBuilder &builder, Value isApplied) {
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
      write.getValueMutable().assign(at.where(at.spread(isApplied, type.getShape()), write.getValue(), old));
    }
    builder.setInsertionPoint(final.front().getTerminator());
  }
};

} // namespace
} // namespace cleave::training
