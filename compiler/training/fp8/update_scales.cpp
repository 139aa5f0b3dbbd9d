#include "compiler/training/fp8/scales.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
#define GEN_PASS_DEF_UPDATESCALES
#include "compiler/training/Passes.h.inc"

namespace {

class ScaleUpdate {
public:
  ScaleUpdate(func::FuncOp final, const recipe::Fp8 &fp8)
      : final(final), fp8(fp8), builder(final, Phase::Update), loc(NameLoc::get(builder.getStringAttr("fp8"))),
        f(builder, loc), scalar(RankedTensorType::get({}, builder.getF32Type())),
        history(RankedTensorType::get({fp8.history}, builder.getF32Type())) {}

  void run(const llvm::MapVector<StringRef, SmallVector<Value>> &amaxes) {
    if (amaxes.empty()) return;
    const Value isOldest = oldestPlace();
    for (const auto &[tensor, ofProducts] : amaxes) {
      Value amax = ofProducts.front();
      for (Value other : ArrayRef(ofProducts).drop_front()) amax = f.make<onnx::MaxOp>(amax, other);
      update(tensor, amax, isOldest);
    }
  }

private:
  func::FuncOp final;
  const recipe::Fp8 &fp8;
  PhaseBuilder builder;
  Location loc;
  Formula f;
  RankedTensorType scalar, history;

  // True at one place of every history; the next step's is the one behind it.
  Value oldestPlace() {
    SymbolTable symbols(final->getParentOfType<ModuleOp>());
    addPersistent(final, symbols, positionName, scalar, "optimizer_state", 0);
    Value position = read(positionName, scalar), next = f.add(position, f.like(position, 1));
    Value isInside = f.make<onnx::LessOp>(next, f.like(next, static_cast<double>(fp8.history)));
    write(positionName, f.only(isInside, next));
    Value place = f.make<onnx::IotaOp>(history, TypeAttr::get(history), builder.getI64IntegerAttr(0), ArrayAttr());
    return f.make<onnx::EqualOp>(place, f.spread(position, history.getShape()));
  }

  void update(StringRef tensor, Value amax, Value isOldest) {
    const std::string historyName = (historyPrefix + tensor).str(), scaleName = (scalePrefix + tensor).str();
    Value latest = f.only(f.make<onnx::LessOp>(amax, f.like(amax, std::numeric_limits<double>::infinity())), amax);
    Value before = read(historyName, history);
    Value known = f.where(isOldest, f.spread(latest, history.getShape()), before);
    write(historyName, known);
    Value old = read(scaleName, scalar);
    Value largest = f.make<onnx::ReduceMaxOp>(known, ArrayRef<int64_t>{0});
    write(scaleName, scaleOf(f, largest, tensor, fp8.margin, old));
  }

  Value read(StringRef name, Type type) {
    return onnx::ReadOp::create(builder, loc, type, FlatSymbolRefAttr::get(builder.getContext(), name)).getValue();
  }
  void write(StringRef name, Value value) {
    onnx::WriteOp::create(builder, loc, FlatSymbolRefAttr::get(builder.getContext(), name), value);
  }
};

class UpdateScales : public impl::UpdateScalesBase<UpdateScales> {
public:
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp final = findFunction(getOperation(), "final", "AccumulateGradients");
    if (!final) return signalPassFailure();
    const SmallVector<StepResult> results = stepResults(final);
    SmallVector<StepResult> others;
    llvm::MapVector<StringRef, SmallVector<Value>> amaxes; // by tensor
    for (const StepResult &result : results) {
      StringRef tensor = result.name;
      if (tensor.consume_front(amaxPrefix))
        amaxes[tensor].push_back(result.value);
      else
        others.push_back(result);
    }
    ScaleUpdate(final, recipe.fp8).run(amaxes);
    setStepResults(final, others);
  }
};

} // namespace
} // namespace cleave::training
