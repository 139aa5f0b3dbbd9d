#include "compiler/training/parameter_names.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
#define GEN_PASS_DEF_FREEZEROWS
#include "compiler/training/Passes.h.inc"

namespace {

class FreezeRows : public impl::FreezeRowsBase<FreezeRows> {
public:
  using Base::Base;
  void runOnOperation() override {
    if (recipe.frozenRows.empty()) return;
    func::FuncOp final = findFunction(getOperation(), "final", "AccumulateGradients");
    if (!final) return signalPassFailure();
    std::vector<std::string> globs;
    for (const recipe::FrozenRows &frozen : recipe.frozenRows) globs.push_back(frozen.match);
    const recipe::ParameterPatterns patterns(globs);
    SymbolTable symbols(getOperation());
    PhaseBuilder builder(final, Phase::Update);
    SmallVector<StepResult> results = stepResults(final);
    for (StepResult &result : results) {
      if (!result.gradientOf) continue;
      auto param = symbols.lookup<onnx::ParamOp>(result.gradientOf.getValue());
      std::optional<size_t> match = patterns.match(namesOf(param->getAttrDictionary()));
      if (!match) continue;
      FailureOr<Value> frozen = freeze(builder, param, result.value, recipe.frozenRows[*match].rows);
      if (failed(frozen)) return signalPassFailure();
      result.value = *frozen;
    }
    setStepResults(final, results);
  }

private:
  FailureOr<Value> freeze(OpBuilder &builder, onnx::ParamOp param, Value gradient, ArrayRef<int64_t> rows) {
    auto type = onnx::tensorType(gradient);
    const int64_t count = type.getRank() ? type.getDimSize(0) : 0;
    Formula f(builder, gradient.getLoc());
    Value isFrozen;
    for (int64_t row : rows) {
      const int64_t at = row < 0 ? row + count : row;
      if (at < 0 || at >= count)
        return param.emitError() << recipe.at("frozen_rows") << ": frozen_rows: '" << param.getSymName() << "' has "
                                 << count << " rows, and none " << row;
      Value index = f.make<onnx::IotaOp>(type.clone(builder.getI64Type()), 0, ArrayAttr());
      Value is = f.make<onnx::EqualOp>(index, f.like(index, static_cast<double>(at)));
      isFrozen = isFrozen ? f.make<onnx::OrOp>(isFrozen, is) : is;
    }
    return isFrozen ? f.where(isFrozen, f.like(gradient, 0), gradient) : gradient;
  }
};

} // namespace
} // namespace cleave::training
