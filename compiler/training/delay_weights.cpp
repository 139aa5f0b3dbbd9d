#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "runtime/plan/previous_weights.h"

using namespace mlir;

namespace cleave::training {
#define GEN_PASS_DEF_DELAYWEIGHTS
#include "compiler/training/Passes.h.inc"

namespace {

class DelayWeights : public impl::DelayWeightsBase<DelayWeights> {
public:
  void runOnOperation() override {
    func::FuncOp final = findFunction(getOperation(), "final", "ApplyOptimizer");
    if (!final) return signalPassFailure();
    SymbolTable symbols(getOperation());
    PhaseBuilder builder(final, Phase::Update);
    for (auto param : llvm::make_early_inc_range(getOperation().getOps<onnx::ParamOp>())) {
      if (param.getRole() != "parameter" || !param.getTrainable()) continue;
      auto previous = FlatSymbolRefAttr::get(keepVersion(param, symbols));
      for (StringRef name : {"accumulate", "final"})
        if (auto function = symbols.lookup<func::FuncOp>(name)) readPrevious(function, param, previous);
      Value now = onnx::ReadOp::create(builder, param.getLoc(), param.getType(),
                                       FlatSymbolRefAttr::get(param.getSymNameAttr()));
      onnx::WriteOp::create(builder, param.getLoc(), previous, now);
    }
  }

private:
  // It begins as the parameter does.
  static StringAttr keepVersion(onnx::ParamOp param, SymbolTable &symbols) {
    onnx::ParamOp version = param.clone();
    version.setSymName((StringRef(runtime::previousPrefix) + param.getSymName()).str());
    version.setRole("previous_parameter");
    version.setTrainable(false);
    version.setOfAttr(FlatSymbolRefAttr::get(param.getSymNameAttr()));
    version.removeAliasesAttr();
    version.removeUsedByAttr();
    return symbols.insert(version, std::next(param->getIterator()));
  }

  static void readPrevious(func::FuncOp function, onnx::ParamOp param, FlatSymbolRefAttr previous) {
    for (auto read : llvm::make_early_inc_range(function.getOps<onnx::ReadOp>())) {
      if (read.getParam() != param.getSymName()) continue;
      OpBuilder builder(read);
      auto old = onnx::ReadOp::create(builder, read.getLoc(), read.getValue().getType(), previous);
      for (NamedAttribute attribute : read->getDiscardableAttrs())
        old->setDiscardableAttr(attribute.getName(), attribute.getValue());
      read.getValue().replaceUsesWithIf(old.getValue(), [](OpOperand &use) {
        const std::optional<Phase> phase = place::of(use.getOwner()).phase;
        return phase && phase != Phase::Update;
      });
      if (old.getValue().use_empty()) old.erase();
      if (read.getValue().use_empty()) read.erase();
    }
  }
};

} // namespace
} // namespace cleave::training
