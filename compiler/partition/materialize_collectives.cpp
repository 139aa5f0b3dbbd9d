#include "compiler/partition/collective_reasons.h"
#include "compiler/partition/layouts.h"
#include "compiler/partition/local_attributes.h"
#include "compiler/partition/materialize_rolls.h"
#include "compiler/partition/passes.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
#define GEN_PASS_DEF_MATERIALIZECOLLECTIVES
#include "compiler/partition/Passes.h.inc"

namespace {

struct Materialization {
  const Mesh &mesh;
  SymbolTable &symbols;

  FailureOr<RankedTensorType> localType(Operation *op, Type type, Attribute layout) {
    auto sharding = dyn_cast_or_null<ShardingAttr>(layout);
    if (!sharding) return op->emitOpError("has no '") << dist::resultsAttr.name() << "': run propagate-shardings first";
    auto global = cast<RankedTensorType>(type);
    std::vector<int64_t> local;
    std::string error;
    if (!localShape(mesh, sharding.getSharding(), global.getShape().vec(), local, error))
      return op->emitOpError("cannot be cut: ") << error;
    return global.clone(local);
  }

  LogicalResult run(func::FuncOp function) {
    SmallVector<Operation *> reshards;
    // While all types are global: attributes, and the local types that will hold.
    std::vector<std::pair<Value, Type>> types;
    for (Operation &op : function.getBody().front()) {
      if (isa<dist::ReshardOp>(op)) {
        reshards.push_back(&op);
        continue;
      }
      if (op.getNumResults() == 0) continue;
      auto layouts = dist::resultsAttr.of(&op);
      if (!layouts || layouts.size() != op.getNumResults())
        return op.emitOpError("has no '") << dist::resultsAttr.name() << "': run propagate-shardings first";
      for (auto [result, layout] : llvm::zip_equal(op.getResults(), layouts)) {
        FailureOr<RankedTensorType> type = localType(&op, result.getType(), layout);
        if (failed(type)) return failure();
        types.emplace_back(result, *type);
      }
      auto rules = dyn_cast<onnx::FactorRuleOpInterface>(op);
      std::optional<FactorSharding> split = factorsOf(&op);
      if (rules && split) {
        auto local = cast<RankedTensorType>(types.back().second).getShape();
        localizeAttributes(&op, mesh, rules.getFactorRule(), *split, local);
      }
    }
    if (failed(localizeArguments(function))) return failure();
    for (auto [value, type] : types) {
      if (auto constant = value.getDefiningOp<onnx::ConstantOp>())
        cutConstant(constant, cast<RankedTensorType>(type));
      else
        value.setType(type);
    }
    if (failed(materializeRolls(function, mesh))) return failure();
    CollectiveReasons reasons(function, symbols);
    SmallVector<std::vector<ReasonedStep>> steps; // all of them before the first reshard is gone
    for (Operation *op : reshards) steps.push_back(stepsOf(cast<dist::ReshardOp>(op), reasons));
    for (auto [op, itsSteps] : llvm::zip_equal(reshards, steps)) expand(cast<dist::ReshardOp>(op), itsSteps);
    for (Operation &op : function.getBody().front())
      for (StringRef name : {dist::factorsAttr.name(), dist::resultsAttr.name(), place::productAttr.name()})
        op.removeAttr(name);
    Operation *terminator = function.getBody().front().getTerminator();
    function.setType(FunctionType::get(function.getContext(), function.getBody().front().getArgumentTypes(),
                                       terminator->getOperandTypes()));
    return success();
  }

private:
  LogicalResult localizeArguments(func::FuncOp function) {
    for (BlockArgument argument : function.getArguments()) {
      Attribute layout = dist::layoutAttr.of(function, argument.getArgNumber());
      FailureOr<RankedTensorType> type = localType(function, argument.getType(), layout);
      if (failed(type)) return failure();
      argument.setType(*type);
    }
    return success();
  }

  // A splat is made small; of other values each device cuts its part.
  void cutConstant(onnx::ConstantOp constant, RankedTensorType local) {
    auto global = cast<RankedTensorType>(constant.getType());
    if (local == global) return;
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    if (dense && dense.isSplat()) {
      constant.setValueAttr(dense.resizeSplat(local));
      constant.getY().setType(local);
      return;
    }
    Sharding layout = cast<ShardingAttr>(dist::resultsAttr.of(constant)[0]).getSharding();
    OpBuilder builder(constant->getContext());
    builder.setInsertionPointAfter(constant);
    Value whole = constant.getY(), part = whole;
    Operation *firstCut = nullptr;
    for (const ReshardStep &step : reshard(mesh, Sharding::replicated(layout.dims.size()), layout)) {
      part = build(builder, constant.getLoc(), part, step, "a constant, cut by each device", phaseOf(constant));
      if (!firstCut) firstCut = part.getDefiningOp();
    }
    if (firstCut) whole.replaceAllUsesExcept(part, firstCut);
  }

  struct ReasonedStep {
    ReshardStep step;
    std::string why, tensor;
  };
  std::vector<ReasonedStep> stepsOf(dist::ReshardOp op, const CollectiveReasons &reasons) {
    std::vector<ReasonedStep> steps;
    for (const ReshardStep &step : reshard(mesh, op.getFrom().getSharding(), op.getTo().getSharding()))
      steps.push_back({step, reasons.reason(op, step), reasons.tensor(op)});
    return steps;
  }

  void expand(dist::ReshardOp op, ArrayRef<ReasonedStep> steps) {
    OpBuilder builder(op);
    Value value = op.getX();
    for (const auto &[step, why, tensor] : steps) {
      value = build(builder, op.getLoc(), value, step, why, phaseOf(op));
      dist::tensorsAttr.set(value.getDefiningOp(), tensor);
    }
    op.getY().replaceAllUsesWith(value);
    op.erase();
  }

  Value build(OpBuilder &builder, Location loc, Value x, const ReshardStep &step, StringRef why, Phase phase) {
    auto type = cast<RankedTensorType>(x.getType());
    SmallVector<int64_t> shape(type.getShape());
    int64_t n = mesh.groupSize(step.axes);
    if (step.kind == Collective::OwnPart || step.kind == Collective::ReduceScatter) shape[step.dim] /= n;
    if (step.kind == Collective::AllGather || step.kind == Collective::AllToAll) shape[step.dim] *= n;
    if (step.kind == Collective::AllToAll) shape[step.splitDim] /= n;
    Type result = type.clone(shape);
    ArrayAttr axes = axesAttribute(builder.getContext(), step.axes);
    auto reduce = ReductionAttr::get(builder.getContext(), step.reduction);
    StringAttr reasonAttr = builder.getStringAttr(why);
    IntegerAttr dim = builder.getI64IntegerAttr(step.dim), splitDim = builder.getI64IntegerAttr(step.splitDim);
    Operation *op = nullptr;
    switch (step.kind) {
    case Collective::AllReduce:
      op = dist::AllReduceOp::create(builder, loc, result, x, axes, reduce, reasonAttr);
      break;
    case Collective::ReduceScatter:
      op = dist::ReduceScatterOp::create(builder, loc, result, x, axes, reduce, dim, reasonAttr);
      break;
    case Collective::AllGather:
      op = dist::AllGatherOp::create(builder, loc, result, x, axes, dim, reasonAttr);
      break;
    case Collective::AllToAll:
      op = dist::AllToAllOp::create(builder, loc, result, x, axes, splitDim, dim, reasonAttr);
      break;
    case Collective::OwnPart:
      op = dist::OwnPartOp::create(builder, loc, result, x, axes, dim, reasonAttr);
      break;
    default:
      llvm_unreachable("no reshard broadcasts or shifts");
    }
    place::setPhase(op, phase);
    return op->getResult(0);
  }
};

struct MaterializeCollectives : impl::MaterializeCollectivesBase<MaterializeCollectives> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Mesh> mesh = meshOf(module);
    if (failed(mesh)) return signalPassFailure();
    SymbolTable symbols(module);
    Materialization materialization{*mesh, symbols};
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal() && failed(materialization.run(function))) return signalPassFailure();
    // From here on every persistent tensor says where it lies.
    for (auto param : module.getOps<onnx::ParamOp>()) {
      param.setShardingAttr(ShardingAttr::get(&getContext(), homeOf(*mesh, param)));
      dist::updateShardingAttr.remove(param);
    }
    dist::zeroAxesAttr.remove(module);
    dist::batchAxesAttr.remove(module);
    dist::gathersAgainAttr.remove(module);
  }
};

} // namespace
} // namespace cleave::partition
