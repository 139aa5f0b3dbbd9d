// SkipOverflow: a step of fp16 whose gradients overflowed leaves parameters and optimizer state as they were, and the
// loss scale follows (torch.amp.GradScaler.update):
//
//   finite    scale * growth after `interval` finite steps in a row, else the same
//   overflow  scale * backoff, the step counts as skipped
//
// The sign of an overflow is the gradients' norm: it is infinite or NaN when any element is, and every device has it,
// so all decide alike without a word more. Results: loss_scale, as the next step will have it, and skipped, how many
// were so far.
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

class SkipOverflow : public RecipePass<SkipOverflow> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SkipOverflow)
  using RecipePass::RecipePass;
  StringRef getArgument() const final { return "skip-overflow"; }
  StringRef getDescription() const final { return "no update where gradients overflowed; adapt the loss scale"; }

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
    Value finite = f.make<onnx::LessOp>(norm, f.like(norm, infinity));
    keepOld(final, builder, finite);
    Value scale = readScalar(builder, loc, scaleName), good = readScalar(builder, loc, goodStepsName),
          skipped = readScalar(builder, loc, skippedName);
    const recipe::LossScale &spec = recipe.lossScale;
    Value zero = f.like(good, 0), one = f.like(good, 1), next = f.add(good, one);
    Value grows = f.make<onnx::GreaterOrEqualOp>(next, f.like(good, static_cast<double>(spec.interval)));
    Value grown = f.scale(scale, spec.growth);
    grown = f.where(f.make<onnx::LessOp>(grown, f.like(grown, infinity)), grown, scale);
    Value adapted = f.where(finite, f.where(grows, grown, scale), f.scale(scale, spec.backoff));
    write(builder, loc, scaleName, adapted);
    write(builder, loc, goodStepsName, f.where(finite, f.where(grows, zero, next), zero));
    Value count = f.where(finite, skipped, f.add(skipped, one));
    write(builder, loc, skippedName, count);
    results.push_back({scaleName, {}, adapted});
    results.push_back({"skipped", {}, count});
    setStepResults(final, results);
  }

private:
  static void write(OpBuilder &builder, Location loc, StringRef name, Value value) {
    onnx::WriteOp::create(builder, loc, FlatSymbolRefAttr::get(builder.getContext(), name), value);
  }

  // The optimizer's results are written only when all gradients are finite. Running statistics are of the forward
  // pass, accumulators start anew in any case.
  void keepOld(func::FuncOp final, PhaseBuilder &builder, Value finite) {
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
      write.getValueMutable().assign(at.where(at.spread(finite, type.getShape()), write.getValue(), old));
    }
    builder.setInsertionPoint(final.front().getTerminator());
  }
};

} // namespace

std::unique_ptr<Pass> createSkipOverflow(const recipe::Recipe &recipe) {
  return std::make_unique<SkipOverflow>(recipe);
}
void registerSkipOverflow() { PassRegistration<SkipOverflow>(); }

} // namespace cleave::training
