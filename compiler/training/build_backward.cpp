#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/formula.h"

using namespace mlir;
using cleave::onnx::Formula;

namespace cleave::training {
#define GEN_PASS_DEF_BUILDBACKWARD
#include "compiler/training/Passes.h.inc"

namespace {

// No derivative passes: their results depend on parameters, but flatly.
bool isFlat(Operation &op) {
  return isa<onnx::StopGradientOp, onnx::SignOp, onnx::FloorOp, onnx::CeilOp, onnx::RoundOp>(op);
}

class BuildBackward : public impl::BuildBackwardBase<BuildBackward> {
public:
  using Base::Base;
  void runOnOperation() override {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    SmallVector<StepResult> results = stepResults(model);
    Value loss = lossSum(model, results);
    if (!loss) return signalPassFailure();
    if (Value scaled = namedResult(results, "scaled_loss")) { // only for this
      loss = scaled;
      llvm::erase_if(results, [](const StepResult &result) { return result.name == "scaled_loss"; });
    }
    active.clear();
    contributions.clear();
    parameterGrads.clear();
    trained.clear();
    for (auto param : getOperation().getOps<onnx::ParamOp>())
      if (param.getTrainable()) trained.insert(param.getSymNameAttr());
    SmallVector<Operation *> forward;
    if (failed(findActive(model, forward))) return signalPassFailure();

    if (pipeline)
      for (auto [number, op] : llvm::enumerate(model.front().without_terminator()))
        setOrigin(&op, static_cast<int64_t>(number));
    PhaseBuilder builder(model, Phase::Backward);
    int64_t products = 0;
    contributions[loss].push_back(seed(builder, loss, namedResult(results, "loss_weight")));
    for (Operation *op : llvm::reverse(forward)) {
      Operation *last = model.front().getTerminator()->getPrevNode();
      if (failed(differentiate(builder, *op))) return signalPassFailure();
      std::optional<int64_t> number;
      if (numberProducts && isa<onnx::ContractOp>(op)) {
        number = products++;
        place::productAttr.set(op, *number);
      }
      for (Operation *made = last->getNextNode(); !made->hasTrait<OpTrait::IsTerminator>();
           made = made->getNextNode()) {
        if (pipeline) setOrigin(made, place::of(op).origin);
        if (number && isa<onnx::ContractOp>(made)) place::productAttr.set(made, *number);
      }
    }
    if (failed(appendGradients(builder, model, results))) return signalPassFailure();
    setStepResults(model, results);
    getOperation().walk([](onnx::StopGradientOp stop) {
      stop.getY().replaceAllUsesWith(stop.getX());
      stop.erase();
    });
    eraseDeadOps(model);
  }

private:
  static void setOrigin(Operation *op, std::optional<int64_t> origin) {
    place::Place place = place::of(op);
    place.origin = origin;
    place.set(op);
  }

  DenseSet<StringAttr> trained;
  DenseSet<Value> active; // depends on a trained parameter
  DenseMap<Value, SmallVector<Value, 1>> contributions;
  DenseMap<StringAttr, SmallVector<Value, 1>> parameterGrads;

  // Marks active values and lists the ops that make them. All ops without a derivative are reported at once.
  LogicalResult findActive(func::FuncOp model, SmallVectorImpl<Operation *> &forward) {
    std::map<std::string, std::vector<std::string>> unsupported;
    for (Operation &op : model.front().without_terminator()) {
      if (auto read = dyn_cast<onnx::ReadOp>(op)) {
        if (!trained.contains(read.getParamAttr().getAttr())) continue;
      } else if (isFlat(op) || llvm::none_of(op.getOperands(), [&](Value v) { return active.contains(v); })) {
        continue;
      }
      bool made = false;
      for (Value result : op.getResults())
        if (onnx::isFloatTensor(result)) made = active.insert(result).second;
      if (!made) continue;
      if (!isa<onnx::ReadOp, onnx::GradientOpInterface>(op)) {
        std::string where;
        llvm::raw_string_ostream(where) << op.getLoc();
        unsupported[op.getName().getStringRef().str()].push_back(where);
      }
      forward.push_back(&op);
    }
    for (auto &[name, nodes] : unsupported) {
      InFlightDiagnostic error = model.emitError()
                                 << name << " has no derivative, but trained parameters reach the loss "
                                 << "through it (freeze them, or replace the operator); at ";
      llvm::interleaveComma(llvm::ArrayRef(nodes).take_front(10), error);
      if (nodes.size() > 10) error << " and " << nodes.size() - 10 << " more";
    }
    return success(unsupported.empty());
  }

  // d(mean)/d(sum): 1 / the weight of the whole batch where it is known now, else 1 and AccumulateGradients divides.
  Value seed(OpBuilder &builder, Value loss, Value weight) {
    Formula f(builder, NameLoc::get(builder.getStringAttr("loss")));
    if (!weight) return f.like(loss, 1);
    if (auto known = weight.getDefiningOp<onnx::ConstantOp>()) {
      double each = cast<DenseElementsAttr>(known.getValue()).getSplatValue<APFloat>().convertToDouble();
      return f.like(loss, 1 / (each * static_cast<double>(microbatches)));
    }
    if (microbatches > 1 || pipeline) return f.like(loss, 1);
    return f.cast(f.make<onnx::ReciprocalOp>(weight), onnx::tensorType(loss).getElementType());
  }

  Value total(OpBuilder &builder, Location loc, ArrayRef<Value> terms) { return Formula(builder, loc).sum(terms); }

  LogicalResult differentiate(OpBuilder &builder, Operation &op) {
    SmallVector<Value, 1> resultGrads;
    for (Value result : op.getResults()) {
      auto found = contributions.find(result);
      resultGrads.push_back(found == contributions.end() ? Value() : total(builder, op.getLoc(), found->second));
      if (found != contributions.end()) contributions.erase(found);
    }
    if (llvm::none_of(resultGrads, [](Value grad) { return static_cast<bool>(grad); })) return success();
    if (auto read = dyn_cast<onnx::ReadOp>(op)) {
      parameterGrads[read.getParamAttr().getAttr()].push_back(resultGrads[0]);
      return success();
    }
    SmallVector<bool> wanted;
    for (Value operand : op.getOperands()) wanted.push_back(active.contains(operand));
    SmallVector<Value> operandGrads;
    if (failed(cast<onnx::GradientOpInterface>(op).buildGradient(builder, resultGrads, wanted, operandGrads)))
      return failure();
    if (operandGrads.size() != wanted.size())
      return op.emitOpError() << "its gradient facet gives " << operandGrads.size() << " gradients for "
                              << wanted.size() << " operands";
    for (auto [operand, grad, want] : llvm::zip_equal(op.getOperands(), operandGrads, wanted)) {
      if (!grad || !want) continue;
      if (grad.getType() != operand.getType())
        return op.emitOpError() << "its gradient facet gives " << grad.getType() << " for " << operand.getType();
      contributions[operand].push_back(grad);
    }
    return success();
  }

  // In the order of the module's onnx.param, so that norms and updates do not depend on the graph's order.
  LogicalResult appendGradients(OpBuilder &builder, func::FuncOp model, SmallVectorImpl<StepResult> &results) {
    std::string unreached;
    const DenseSet<StringAttr> read = parametersOf(lossSum(model, results));
    for (auto param : getOperation().getOps<onnx::ParamOp>()) {
      if (!param.getTrainable()) continue;
      auto found = parameterGrads.find(param.getSymNameAttr());
      if (found == parameterGrads.end() && read.contains(param.getSymNameAttr())) {
        Formula f(builder, param.getLoc());
        auto type = cast<RankedTensorType>(param.getType());
        results.push_back({"", FlatSymbolRefAttr::get(param.getSymNameAttr()), f.constant(type, 0)});
        continue;
      }
      if (found == parameterGrads.end()) {
        unreached += (unreached.empty() ? "" : ", ") + param.getSymName().str();
        continue;
      }
      Value grad = total(builder, param.getLoc(), found->second);
      results.push_back({"", FlatSymbolRefAttr::get(param.getSymNameAttr()), grad});
    }
    if (results.back().gradientOf == nullptr)
      return model.emitError() << "no trainable parameter reaches the loss; check the recipe's `trainable` globs";
    if (!unreached.empty())
      model.emitWarning() << "these parameters do not reach the loss and stay as they are: " << unreached;
    return success();
  }
};

} // namespace
} // namespace cleave::training
