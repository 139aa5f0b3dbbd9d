#include "compiler/training/fp8/quantized_state.h"
#include "compiler/training/optimizers.h"
#include "compiler/training/parameter_groups.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "runtime/plan/row_scales.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
#define GEN_PASS_DEF_APPLYOPTIMIZER
#include "compiler/training/Passes.h.inc"

namespace {

Type computedIn(Type element) {
  return element.getIntOrFloatBitWidth() == 16 ? Type(Float32Type::get(element.getContext())) : element;
}

class Context : public OptimizerContext {
public:
  Context(func::FuncOp final, PhaseBuilder &builder, SymbolTable &symbols)
      : final(final), builder(builder), symbols(symbols) {
    auto module = final->getParentOfType<ModuleOp>();
    resumed = stateSince(module);
    if (auto steps = onnx::stepsBeforeAttr.of(module)) before = *steps;
    for (auto read : final.getOps<onnx::ReadOp>()) reads[read.getParam()].push_back(read);
  }

  // The parameter whose state is asked for next, and its group.
  void begin(onnx::ParamOp param, Location at, const ParameterGroup &of) {
    current = param;
    loc = at;
    group = of;
  }
  Value learningRate() override {
    Value rate = hostScalar(final, "learning_rate");
    if (group.rateScale == 1) return rate;
    return shared("learning_rate", [&] { return Formula(builder, final.getLoc()).scale(rate, group.rateScale); });
  }
  Value oneMinusPower(double base) override { return hostScalar(final, "one_minus_power", base, group.since); }
  Value stepsBefore() override {
    Formula f(builder, final.getLoc());
    Value all = countedState("steps", static_cast<double>(before.value_or(0)),
                             [&](Value before) { return f.add(before, f.like(before, 1)); });
    if (group.since == 0) return all;
    return shared("steps", [&] { return f.sub(all, f.like(all, static_cast<double>(group.since))); });
  }
  Value sharedState(StringRef key, double fill, llvm::function_ref<Value(Value)> next) override {
    return countedState(group.since == 0 ? key.str() : (key + "/since " + Twine(group.since)).str(), fill, next);
  }
  Value shared(StringRef key, llvm::function_ref<Value()> build) override {
    return once(group.told + ": " + key.str(), build);
  }
  Value state(StringRef kind, double fill) override { return state(kind, fill, typeOfParameter().getShape()); }
  Value state(StringRef kind, double fill, ArrayRef<int64_t> shape) override {
    return readState(kind, fill, typeOfParameter().clone(shape));
  }
  Value momentum(StringRef kind) override {
    const recipe::StateType stored = group.spec.stateType;
    if (stored == recipe::StateType::Fp8 && isQuantizable(exportedShape().drop_front(isStacked() ? 1 : 0)))
      return readQuantized(kind);
    const bool isSmall = stored == recipe::StateType::Bf16;
    return readState(kind, 0, isSmall ? typeOfParameter().clone(builder.getBF16Type()) : typeOfParameter());
  }
  void setState(StringRef kind, Value value) override {
    Formula f(builder, *loc);
    const State &of = states.at(kind);
    if (of.rows) {
      const QuantizedRows::Stored stored = of.rows->stored(f, value);
      onnx::WriteOp::create(builder, *loc, of.scales, stored.scales);
      value = stored.codes;
    }
    onnx::WriteOp::create(builder, *loc, of.symbol, f.cast(value, of.element));
  }

  ArrayRef<int64_t> exportedShape() override {
    if (auto original = current.getOriginalShape()) return *original;
    return cast<RankedTensorType>(current.getType()).getShape();
  }
  bool isStacked() override { return onnx::piecesAttr.isOn(current); }
  // By the products of the forward pass that read it.
  MatrixUse matrixUse() override {
    MatrixUse use = MatrixUse::None;
    for (onnx::ReadOp read : reads.lookup(current.getSymName()))
      if (!addUses(read.getValue(), use)) return MatrixUse::None;
    return use;
  }

  // Says of the ops since `before` that they are the current parameter's rule, if they sum (see step_function.h). A
  // row's largest is the same in any order.
  void nameRule(Operation *before) {
    SmallVector<Operation *> rule;
    for (Operation *op = before->getNextNode(); op != &*builder.getInsertionPoint(); op = op->getNextNode())
      if (!ofAll.contains(op)) rule.push_back(op);
    if (llvm::none_of(rule, llvm::IsaPred<onnx::ReduceSumOp>)) return;
    for (Operation *op : rule) place::ruleAttr.set(op, current.getSymNameAttr());
  }

  // The steps after which the parameter's state begins: 0 where it trained all along.
  int64_t since(onnx::ParamOp param) const {
    if (!resumed) return 0;
    auto known = resumed->find(param.getSymName());
    return known == resumed->end() ? *before : known->second;
  }
  int64_t stepsDone() override { return before.value_or(0) - group.since; }
  // What does not fit of the training that this one continues; "": all does.
  std::string mismatch(ArrayRef<onnx::ParamOp> parameters) const {
    if (resumed) return ""; // the snapshot's state counts
    if (!missing.empty()) return "'init.optimizer' has no " + missing;
    for (onnx::ParamOp parameter : parameters)
      if (auto kinds = onnx::optimizerStateAttr.of(parameter))
        for (NamedAttribute kind : kinds)
          if (!used.contains(kind.getName()))
            return ("'init.optimizer' has " + kind.getName().getValue() + ", which this optimizer does not keep").str();
    return "";
  }

private:
  // False for another use than by a product. In fp8 products read what the value is scaled and rounded to.
  bool addUses(Value value, MatrixUse &use) {
    for (OpOperand &operand : value.getUses()) {
      Operation *user = operand.getOwner();
      if (!place::hasPhase(user, Phase::Forward)) continue;
      if (onnx::fp8ScalingAttr.isOn(user)) {
        Value made = user->getResult(0);
        const bool isScaled = onnx::tensorType(made).getShape() == onnx::tensorType(value).getShape(); // else its amax
        if (isScaled && !addUses(made, use)) return false;
        continue;
      }
      use = matrixUse(operand);
      if (use == MatrixUse::None) return false;
    }
    return true;
  }

  MatrixUse matrixUse(OpOperand &operand) {
    int64_t first = isStacked() ? 1 : 0;
    if (static_cast<int64_t>(exportedShape().size()) < first + 2) return MatrixUse::None;
    if (isa<onnx::ConvOp>(operand.getOwner())) return MatrixUse::OutputsFirst;
    if (isa<onnx::ConvGradInputOp>(operand.getOwner())) return MatrixUse::InputsFirst; // ConvTranspose
    auto contract = dyn_cast<onnx::ContractOp>(operand.getOwner());
    if (!contract) return MatrixUse::None;
    bool left = operand.getOperandNumber() == 0;
    int64_t index = (left ? contract.getLhsIndices() : contract.getRhsIndices())[first];
    return llvm::is_contained(contract.getResultIndices(), index) ? MatrixUse::OutputsFirst : MatrixUse::InputsFirst;
  }

  func::FuncOp final;
  PhaseBuilder &builder;
  SymbolTable &symbols;
  onnx::ParamOp current;
  std::optional<Location> loc;
  ParameterGroup group;
  llvm::StringMap<SmallVector<onnx::ReadOp>> reads; // of the passes before, by parameter
  llvm::StringMap<Value> scalars;
  llvm::SmallPtrSet<Operation *, 16> ofAll; // what those are computed by
  struct State {
    FlatSymbolRefAttr symbol;
    Type element;
    std::optional<QuantizedRows> rows = {}; // in 8 bits
    FlatSymbolRefAttr scales = {};
  };
  llvm::StringMap<State> states;                   // of the parameter
  std::optional<llvm::StringMap<int64_t>> resumed; // from a snapshot, which has the state
  std::optional<int64_t> before;                   // steps of the training that this one continues
  std::string missing;                             // what that training lacks
  llvm::StringSet<> used;                          // kinds of its state

  Value once(const std::string &key, llvm::function_ref<Value()> build) {
    if (Value made = scalars.lookup(key)) return made;
    Operation *before = &*std::prev(builder.getInsertionPoint());
    Value made = build();
    for (Operation *op = before->getNextNode(); op != &*builder.getInsertionPoint(); op = op->getNextNode())
      ofAll.insert(op);
    return scalars[key] = made;
  }
  // One for all groups.
  Value countedState(const std::string &key, double fill, llvm::function_ref<Value(Value)> next) {
    return once(key, [&] {
      auto type = RankedTensorType::get({}, builder.getF32Type());
      FlatSymbolRefAttr symbol = define("optimizer." + key, type, fill, FlatSymbolRefAttr());
      Value before = onnx::ReadOp::create(builder, final.getLoc(), type, symbol);
      onnx::WriteOp::create(builder, final.getLoc(), symbol, next(before));
      return before;
    });
  }
  RankedTensorType typeOfParameter() { return cast<RankedTensorType>(current.getType()); }
  Value readState(StringRef kind, double fill, RankedTensorType type) {
    Value read = readStored(kind, fill, type);
    return Formula(builder, *loc).cast(read, computedIn(type.getElementType()));
  }
  Value readStored(StringRef kind, double fill, RankedTensorType type) {
    auto of = FlatSymbolRefAttr::get(current.getSymNameAttr());
    states[kind] = {.symbol = define((kind + "/" + current.getSymName()).str(), type, fill, of),
                    .element = type.getElementType()};
    if (before && !resumed) begin(kind, symbols.lookup<onnx::ParamOp>(states[kind].symbol.getValue()));
    return onnx::ReadOp::create(builder, *loc, type, states[kind].symbol);
  }
  Value readQuantized(StringRef kind) {
    auto of = FlatSymbolRefAttr::get(current.getSymNameAttr());
    const QuantizedRows rows(typeOfParameter().clone(computedIn(typeOfParameter().getElementType())), isStacked());
    Value codes = readStored(kind, 0, rows.codeType());
    State &state = states[kind];
    state.rows = rows;
    state.scales = define(runtime::rowScalesName(state.symbol.getValue().str()), rows.scaleType(), 1, of);
    Value scales = onnx::ReadOp::create(builder, *loc, rows.scaleType(), state.scales);
    Formula f(builder, *loc);
    return rows.numbers(f, codes, scales);
  }
  // The state begins as the training that this one continues has it.
  void begin(StringRef kind, onnx::ParamOp state) {
    auto kinds = onnx::optimizerStateAttr.of(current);
    auto places = kinds ? kinds.getAs<ArrayAttr>(kind) : ArrayAttr();
    const bool isAlike = cast<ShapedType>(state.getType()).getShape() == typeOfParameter().getShape();
    if (!places || !isAlike) {
      missing += (missing.empty() ? "" : ", ") + state.getSymName().str();
      return;
    }
    used.insert(kind);
    state.removeFillAttr();
    state.setInitAttr(builder.getDictionaryAttr(builder.getNamedAttr("sources", places)));
    state.setOriginalShapeAttr(current.getOriginalShapeAttr());
  }
  FlatSymbolRefAttr define(const std::string &name, RankedTensorType type, double fill, FlatSymbolRefAttr of) {
    return FlatSymbolRefAttr::get(
        addPersistent(final, symbols, name, type, "optimizer_state", fill, of).getSymNameAttr());
  }
};

class ApplyOptimizer : public impl::ApplyOptimizerBase<ApplyOptimizer> {
public:
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp final = findFunction(getOperation(), "final", "AccumulateGradients");
    if (!final) return signalPassFailure();
    SymbolTable symbols(getOperation());
    SmallVector<onnx::ParamOp> trained;
    for (const StepResult &result : stepResults(final))
      if (result.gradientOf)
        if (auto param = symbols.lookup<onnx::ParamOp>(result.gradientOf.getValue())) trained.push_back(param);
    llvm::sort(trained, [](onnx::ParamOp a, onnx::ParamOp b) { return a->isBeforeInBlock(b); }); // as in the model
    const ParameterGroups groups(recipe.optimizer, trained);
    PhaseBuilder builder(final, Phase::Update);
    Context context(final, builder, symbols);
    SmallVector<StepResult> finished;
    for (const StepResult &result : stepResults(final)) {
      if (!result.gradientOf) {
        finished.push_back(result);
        continue;
      }
      auto param = symbols.lookup<onnx::ParamOp>(result.gradientOf.getValue());
      if (!param) {
        final.emitError() << "has a gradient of " << result.gradientOf << ", which is no onnx.param";
        return signalPassFailure();
      }
      Location loc = param.getLoc();
      Result<ParameterGroup> group = groups.of(param);
      if (!group) {
        param.emitError(group.status().message());
        return signalPassFailure();
      }
      group->since = context.since(param);
      if (group->since > 0)
        group->told += (group->told.empty() ? "" : ", ") + ("state since step " + std::to_string(group->since));
      if (!group->told.empty()) onnx::groupAttr.set(param, group->told);
      context.begin(param, loc, *group);
      auto type = cast<RankedTensorType>(param.getType());
      Value old = onnx::ReadOp::create(builder, loc, type, result.gradientOf);
      Operation *before = old.getDefiningOp();
      Formula f(builder, loc);
      Type computed = computedIn(type.getElementType());
      Value updated = buildUpdate(f, group->spec, context, f.cast(old, computed), f.cast(result.value, computed));
      updated = f.cast(updated, type.getElementType());
      context.nameRule(before);
      onnx::WriteOp::create(builder, loc, result.gradientOf, updated);
    }
    if (const std::string mismatch = context.mismatch(trained); !mismatch.empty()) {
      final.emitError() << recipe.at("init.optimizer") << ": " << mismatch;
      return signalPassFailure();
    }
    setStepResults(final, finished);
  }
};

} // namespace
} // namespace cleave::training
