#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"
#include "runtime/plan/master_weights.h"

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;

namespace cleave::training {
#define GEN_PASS_DEF_AVERAGEWEIGHTS
#include "compiler/training/Passes.h.inc"

namespace {

class AverageWeights : public impl::AverageWeightsBase<AverageWeights> {
public:
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp final = findFunction(getOperation(), "final", "AccumulateGradients");
    if (!final) return signalPassFailure();
    if (!recipe.ema) return;
    SymbolTable symbols(getOperation());
    PhaseBuilder builder(final, Phase::Update);
    const Due due = countSteps(final, builder, symbols);
    for (auto write : llvm::to_vector(final.getOps<onnx::WriteOp>())) {
      auto param = symbols.lookup<onnx::ParamOp>(write.getParamAttr().getAttr());
      if (param && param.getRole() == "parameter") average(builder, symbols, write, param, due);
    }
    if (auto evaluate = symbols.lookup<func::FuncOp>("evaluate")) readAverages(evaluate, symbols);
  }

private:
  struct Due {
    Value isFirst, now; // no average was made yet; this step makes one
  };
  // Persistent scalars: averages made, and steps since the last one.
  Due countSteps(func::FuncOp final, PhaseBuilder &builder, SymbolTable &symbols) {
    Location loc = NameLoc::get(builder.getStringAttr("ema"));
    Formula f(builder, loc);
    auto scalar = RankedTensorType::get({}, builder.getF32Type());
    auto counter = [&](StringRef name) {
      addPersistent(final, symbols, name, scalar, "optimizer_state", 0);
      return onnx::ReadOp::create(builder, loc, scalar, FlatSymbolRefAttr::get(builder.getContext(), name)).getValue();
    };
    auto write = [&](StringRef name, Value value) {
      onnx::WriteOp::create(builder, loc, FlatSymbolRefAttr::get(builder.getContext(), name), value);
    };
    Value made = counter("ema.made"), waited = counter("ema.waited");
    Value next = f.add(waited, f.like(waited, 1));
    Value now = f.make<onnx::GreaterOrEqualOp>(next, f.like(next, static_cast<double>(recipe.ema->every)));
    write("ema.waited", f.where(now, f.like(next, 0), next));
    write("ema.made", f.where(now, f.like(made, 1), made));
    return {f.make<onnx::LessOp>(made, f.like(made, 1)), now};
  }

  void average(PhaseBuilder &builder, SymbolTable &symbols, onnx::WriteOp write, onnx::ParamOp param, const Due &due) {
    Location loc = write.getLoc();
    Formula f(builder, loc);
    Type f32 = builder.getF32Type();
    auto type = cast<RankedTensorType>(cast<RankedTensorType>(param.getType()).clone(f32));
    onnx::ParamOp made = addCopy(param, symbols, runtime::averageName(param.getSymName().str()), type);
    auto symbol = FlatSymbolRefAttr::get(made.getSymNameAttr());
    Value before = onnx::ReadOp::create(builder, loc, type, symbol), now = f.cast(write.getValue(), f32);
    const double decay = recipe.ema->decay;
    Value next = f.add(f.scale(before, decay), f.scale(now, 1 - decay));
    next = f.where(f.spread(due.isFirst, type.getShape()), now, next);
    next = f.where(f.spread(due.now, type.getShape()), next, before);
    onnx::WriteOp::create(builder, loc, symbol, next);
  }

  void readAverages(func::FuncOp evaluate, SymbolTable &symbols) {
    for (auto read : llvm::to_vector(evaluate.getOps<onnx::ReadOp>())) {
      const std::string name = runtime::averageName(read.getParam().str());
      auto param = symbols.lookup<onnx::ParamOp>(name);
      if (!param) continue;
      OpBuilder builder(read);
      Formula f(builder, read.getLoc());
      auto made = onnx::ReadOp::create(builder, read.getLoc(), param.getType(),
                                       FlatSymbolRefAttr::get(builder.getContext(), name));
      Value value = f.cast(made.getValue(), tensorType(read.getValue()).getElementType());
      for (Operation *op : {made.getOperation(), value.getDefiningOp()}) place::setPhase(op, Phase::Forward);
      read.getValue().replaceAllUsesWith(value);
      read.erase();
    }
  }
};

} // namespace
} // namespace cleave::training
