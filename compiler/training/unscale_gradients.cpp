#include "compiler/training/loss_scale.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
#define GEN_PASS_DEF_UNSCALEGRADIENTS
#include "compiler/training/Passes.h.inc"

namespace {

class UnscaleGradients : public impl::UnscaleGradientsBase<UnscaleGradients> {
public:
  void runOnOperation() override {
    func::FuncOp final = findFunction(getOperation(), "final", "AccumulateGradients");
    if (!final) return signalPassFailure();
    PhaseBuilder builder(final, Phase::Update);
    Location loc = NameLoc::get(builder.getStringAttr(scaleName));
    Formula f(builder, loc);
    Value inverse = f.make<onnx::ReciprocalOp>(readScalar(builder, loc, scaleName));
    if (auto factor = onnx::lossFactorAttr.of(getOperation())) {
      inverse = f.scale(inverse, 1 / *factor);
      onnx::lossFactorAttr.remove(getOperation());
    }
    SmallVector<StepResult> results = stepResults(final);
    for (StepResult &result : results) {
      if (!result.gradientOf) continue;
      Formula at(builder, result.value.getLoc());
      auto type = onnx::tensorType(result.value);
      Type element = type.getElementTypeBitWidth() < 32 ? builder.getF32Type() : type.getElementType();
      result.value = at.mul(at.cast(result.value, element), at.spread(at.cast(inverse, element), type.getShape()));
    }
    setStepResults(final, results);
  }
};

} // namespace
} // namespace cleave::training
