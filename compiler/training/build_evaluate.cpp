#include "compiler/training/metrics.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"

using namespace mlir;
namespace cleave::training {
#define GEN_PASS_DEF_BUILDEVALUATE
#include "compiler/training/Passes.h.inc"

namespace {

class BuildEvaluate : public impl::BuildEvaluateBase<BuildEvaluate> {
public:
  void runOnOperation() override {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    func::FuncOp evaluate = model.clone();
    evaluate.setName("evaluate");
    getOperation().insert(std::next(model->getIterator()), evaluate);
    SmallVector<Operation *> ops; // those inside attention too
    evaluate.walk([&](Operation *op) { ops.push_back(op); });
    for (Operation *op : ops) {
      if (isa<onnx::WriteOp>(op))
        op->erase();
      else if (failed(bypass(*op)))
        return signalPassFailure();
    }
    model.walk([](Operation *op) {
      onnx::dropoutAttr.remove(op);
      onnx::batchStatisticAttr.remove(op);
    });

    PhaseBuilder builder(evaluate, Phase::Forward);
    onnx::Formula f(builder, NameLoc::get(builder.getStringAttr("loss")));
    SmallVector<StepResult> results = stepResults(evaluate);
    Value loss = lossSum(evaluate, results), weight = namedResult(results, "loss_weight");
    if (!loss) return signalPassFailure();
    SmallVector<StepResult> finished{{"loss", {}, weight ? f.div(loss, weight) : loss}};
    if (weight) finished.push_back({"loss_weight", {}, weight}); // to join the losses of several microbatches
    for (const StepResult &result : results) {
      StringRef name = result.name;
      if (isLossCountTensor(name) || name.starts_with(lossPrefix) || name.starts_with(lossWeightPrefix) ||
          isMetric(result))
        finished.push_back(result); // counts are for BuildCount
    }
    setStepResults(evaluate, finished);
    SmallVector<StepResult> kept = stepResults(model);
    llvm::erase_if(kept, [](const StepResult &result) {
      return isMetric(result) || StringRef(result.name).starts_with(lossWeightPrefix);
    });
    setStepResults(model, kept);
    eraseDeadOps(evaluate);
    eraseDeadOps(model);
  }

private:
  static bool isMetric(const StepResult &result) { return StringRef(result.name).starts_with(metricPrefix); }

  LogicalResult bypass(Operation &op) {
    Value replacement;
    if (auto statistic = onnx::batchStatisticAttr.of(&op)) {
      OpBuilder builder(&op);
      auto read = onnx::ReadOp::create(builder, op.getLoc(), op.getResult(0).getType(), statistic);
      place::setPhase(read, Phase::Forward);
      replacement = read.getValue();
    } else if (onnx::dropoutAttr.isOn(&op) && op.getNumOperands() > 0) {
      replacement = op.getOperand(0);
    } else {
      return success();
    }
    if (replacement.getType() != op.getResult(0).getType())
      return op.emitOpError() << "has type " << op.getResult(0).getType() << ", what replaces it in evaluation "
                              << replacement.getType();
    op.getResult(0).replaceAllUsesWith(replacement);
    op.erase();
    return success();
  }
};

} // namespace
} // namespace cleave::training
