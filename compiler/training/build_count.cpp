#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
#define GEN_PASS_DEF_BUILDCOUNT
#include "compiler/training/Passes.h.inc"

namespace {

class BuildCount : public impl::BuildCountBase<BuildCount> {
public:
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    if (llvm::none_of(stepResults(model), [](const StepResult &result) { return isLossCountTensor(result.name); }))
      return;
    func::FuncOp count = model.clone();
    count.setName("count");
    getOperation().insert(model->getIterator(), count);
    accumulateCounts(count);
    setStepResults(model, withoutCounts(model));
    if (auto evaluate = getOperation().lookupSymbol<func::FuncOp>("evaluate")) countItself(evaluate);
  }

private:
  static SmallVector<StepResult> withoutCounts(func::FuncOp function) {
    SmallVector<StepResult> results = stepResults(function);
    llvm::erase_if(results, [](const StepResult &result) { return isLossCountTensor(result.name); });
    return results;
  }

  // Reduces the clone of @model to @count, which adds each loss count to its accumulator.
  static void accumulateCounts(func::FuncOp count) {
    for (auto write : llvm::make_early_inc_range(count.getOps<onnx::WriteOp>())) write.erase();
    PhaseBuilder builder(count, Phase::Update);
    for (const StepResult &result : stepResults(count)) {
      if (!isLossCountTensor(result.name)) continue;
      auto symbol = FlatSymbolRefAttr::get(count.getContext(), result.name);
      Location loc = result.value.getLoc();
      Value before = onnx::ReadOp::create(builder, loc, result.value.getType(), symbol);
      onnx::WriteOp::create(builder, loc, symbol, Formula(builder, loc).add(before, result.value));
    }
    setStepResults(count, {});
    eraseDeadOps(count);
    BitVector unused(count.getNumArguments());
    for (BlockArgument argument : count.getArguments())
      if (argument.use_empty()) unused.set(argument.getArgNumber());
    (void)count.eraseArguments(unused); // cannot fail: nothing calls the function
  }

  void countItself(func::FuncOp evaluate) {
    for (const StepResult &result : stepResults(evaluate)) {
      if (!isLossCountTensor(result.name)) continue;
      PhaseBuilder builder(evaluate, Phase::Forward);
      builder.setInsertionPointAfterValue(result.value);
      Value all = Formula(builder, result.value.getLoc()).scale(result.value, static_cast<double>(microbatches));
      for (auto read : llvm::make_early_inc_range(evaluate.getOps<onnx::ReadOp>()))
        if (read.getParam() == result.name) {
          read.getValue().replaceAllUsesWith(all);
          read.erase();
        }
    }
    setStepResults(evaluate, withoutCounts(evaluate));
    eraseDeadOps(evaluate);
  }
};

} // namespace
} // namespace cleave::training
