#include "compiler/training/fp8/scales.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"
#include <llvm/ADT/MapVector.h>

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
#define GEN_PASS_DEF_ACCUMULATEGRADIENTS
#include "compiler/training/Passes.h.inc"

namespace {

class AccumulateGradients : public impl::AccumulateGradientsBase<AccumulateGradients> {
public:
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    if (microbatches < 1) {
      model.emitError() << "microbatches must be 1 or more, is " << microbatches.getValue();
      return signalPassFailure();
    }
    model.setName("final");
    if (microbatches == 1 && !pipeline) return finishStep(model, stepResults(model), Value());
    addAccumulators(model);
    func::FuncOp accumulate = model.clone();
    accumulate.setName("accumulate");
    getOperation().insert(model->getIterator(), accumulate);
    accumulateInto(accumulate);
    addAccumulated(model);
  }

private:
  SmallVector<FlatSymbolRefAttr> accumulators; // one a result of @model; null: not accumulated

  static bool isKnown(Value weight) { return weight.getDefiningOp<onnx::ConstantOp>() != nullptr; }

  // One zero-filled accumulator a gradient, for the loss, and for a weight that depends on the labels.
  void addAccumulators(func::FuncOp model) {
    SymbolTable symbols(getOperation());
    accumulators.clear();
    for (const StepResult &result : stepResults(model)) {
      if (result.name == "loss_weight" && isKnown(result.value)) {
        accumulators.emplace_back();
        continue;
      }
      std::string name =
          result.gradientOf ? "accumulator/" + result.gradientOf.getValue().str() : "accumulator." + result.name;
      auto param = addPersistent(model, symbols, name, result.value.getType(), "accumulator", 0, result.gradientOf);
      accumulators.push_back(FlatSymbolRefAttr::get(param.getSymNameAttr()));
    }
  }

  static bool isAmax(const StepResult &result) { return StringRef(result.name).starts_with(amaxPrefix); }

  // The accumulator's value so far plus this microbatch's, or the larger of both.
  Value accumulated(PhaseBuilder &builder, const StepResult &result, FlatSymbolRefAttr accumulator) {
    Location loc = result.value.getLoc();
    Value before = onnx::ReadOp::create(builder, loc, result.value.getType(), accumulator);
    Formula f(builder, loc);
    return isAmax(result) ? f.make<onnx::MaxOp>(before, result.value) : f.add(before, result.value);
  }

  void accumulateInto(func::FuncOp accumulate) {
    PhaseBuilder builder(accumulate, Phase::Update);
    for (auto [result, accumulator] : llvm::zip_equal(stepResults(accumulate), accumulators)) {
      if (!accumulator) continue;
      Value sum = accumulated(builder, result, accumulator);
      onnx::WriteOp::create(builder, sum.getLoc(), accumulator, sum);
    }
    setStepResults(accumulate, {});
  }

  void addAccumulated(func::FuncOp final) {
    PhaseBuilder builder(final, Phase::Update);
    SmallVector<StepResult> results = stepResults(final);
    Value weight;
    for (auto [result, accumulator] : llvm::zip_equal(results, accumulators)) {
      Formula f(builder, result.value.getLoc());
      if (accumulator) {
        result.value = accumulated(builder, result, accumulator);
        onnx::WriteOp::create(builder, result.value.getLoc(), accumulator, f.like(result.value, 0));
        if (result.name == "loss_weight") weight = result.value;
      } else { // the weight of one microbatch, known: all have the same
        auto known = result.value.getDefiningOp<onnx::ConstantOp>();
        double each = cast<DenseElementsAttr>(known.getValue()).getSplatValue<APFloat>().convertToDouble();
        result.value = f.like(result.value, each * static_cast<double>(microbatches));
      }
    }
    zeroCounts(builder, final);
    finishStep(final, results, weight);
  }

  static void zeroCounts(PhaseBuilder &builder, func::FuncOp final) {
    llvm::MapVector<StringAttr, Type> counts;
    for (auto read : final.getOps<onnx::ReadOp>())
      if (isLossCountTensor(read.getParam())) counts.insert({read.getParamAttr().getAttr(), read.getValue().getType()});
    for (auto [symbol, type] : counts) {
      Location loc = NameLoc::get(symbol);
      Value zero = Formula(builder, loc).constant(cast<RankedTensorType>(type), 0);
      onnx::WriteOp::create(builder, loc, FlatSymbolRefAttr::get(symbol), zero);
    }
  }

  // Results become loss and gradients; `undivided` is the weight that the gradients still must be divided by.
  void finishStep(func::FuncOp final, SmallVector<StepResult> results, Value undivided) {
    PhaseBuilder builder(final, Phase::Update);
    Value sum = lossSum(final, results), weight = namedResult(results, "loss_weight");
    if (!sum) return signalPassFailure();
    Formula f(builder, NameLoc::get(builder.getStringAttr("loss")));
    SmallVector<StepResult> finished{{"loss", {}, weight ? f.div(sum, weight) : sum}};
    for (StepResult &result : results) {
      if (isAmax(result)) finished.push_back(result);
      if (StringRef(result.name).starts_with(lossPrefix))
        finished.push_back(
            {result.name, {}, f.div(result.value, f.cast(weight, onnx::tensorType(result.value).getElementType()))});
      if (!result.gradientOf) continue;
      if (undivided) {
        Formula at(builder, result.value.getLoc());
        auto type = onnx::tensorType(result.value);
        result.value = at.div(result.value, at.spread(at.cast(undivided, type.getElementType()), type.getShape()));
      }
      finished.push_back(result);
    }
    setStepResults(final, finished);
  }
};

} // namespace
} // namespace cleave::training
