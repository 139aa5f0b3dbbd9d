#include "compiler/partition/layouts.h"
#include "compiler/partition/passes.h"
#include "compiler/training/node_names.h"
#include "dialects/onnx/kinds.h"
#include "dialects/place/Place.h"
#include <llvm/ADT/StringSet.h>
#include <llvm/Support/MemoryBuffer.h>

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
#define GEN_PASS_DEF_APPLYDECISION
#include "compiler/partition/Passes.h.inc"

namespace {

struct ApplyDecision : impl::ApplyDecisionBase<ApplyDecision> {
  using Base::Base;
  ApplyDecision(planner::Decision decided, bool ofAnotherSize)
      : decision(std::move(decided)), given(true), ofAnotherSize(ofAnotherSize) {}

  void runOnOperation() override {
    if (!given && failed(readFile())) return signalPassFailure();
    ModuleOp module = getOperation();
    Builder builder(module.getContext());
    dist::meshAttr.set(module, MeshAttr::get(module.getContext(), decision.mesh));
    dist::zeroAxesAttr.set(module, AxesAttr::get(module.getContext(), decision.zeroAxes));
    dist::batchAxesAttr.set(module, AxesAttr::get(module.getContext(), decision.batchAxes));
    if (decision.gathersAgain) dist::gathersAgainAttr.set(module);
    if (failed(applyNodes(module)) || failed(applyParameters(module))) signalPassFailure();
  }

private:
  static bool computesNothing(Operation *op) {
    auto cost = dyn_cast<onnx::CostOpInterface>(op);
    return !cost || cost.getFlops() == 0;
  }

  // Decisions are made at the whole batch, and at the longest of several lengths. At a microbatch a Loop over samples is
  // written out fewer times, a sum over one entry is folded away, a mask is the same everywhere at a length: such an
  // operation lies as what it reads and what reads it. A product is always there.
  bool isOfAnotherSize() const { return decision.microbatches > 1 || ofAnotherSize; }
  bool mayFoldOtherwise(Operation *op) const { return isOfAnotherSize() && !onnx::isHeavy(op); }

  using NodeDecisions = llvm::StringMap<const planner::NodeDecision *>;

  LogicalResult readFile() {
    auto buffer = llvm::MemoryBuffer::getFile(file);
    if (!buffer) return getOperation().emitError("cannot read the decision file '") << file << "'";
    auto parsed = planner::Decision::parse((*buffer)->getBuffer().str(), file);
    if (!parsed.isOk()) return getOperation().emitError(parsed.status().message());
    decision = std::move(*parsed);
    return success();
  }

  LogicalResult applyNodes(ModuleOp module) {
    NodeDecisions nodes;
    for (const planner::NodeDecision &node : decision.nodes)
      if (!nodes.try_emplace(node.node, &node).second)
        return module.emitError("the decision names operation '") << node.node << "' twice";
    llvm::StringSet<> found;
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal() && failed(applyNodes(function, nodes, found))) return failure();
    // A pass may have made one part of another, or may not have added here what it added to the planner's step.
    for (const std::string &name : place::nodesAttr.of(module)) found.insert(name);
    place::nodesAttr.remove(module);
    for (const planner::NodeDecision &node : decision.nodes)
      if (node.computes && !isOfAnotherSize() && !training::isOfLoss(node.node) && !found.contains(node.node) &&
          !found.contains(StringRef(node.node).rsplit(":+").first))
        return module.emitError("the decision names operation '")
               << node.node << "', and the step has none of that name";
    return success();
  }

  LogicalResult applyNodes(func::FuncOp function, const NodeDecisions &nodes, llvm::StringSet<> &found) {
    for (const training::NamedOperation &named : training::forwardOperations(function)) {
      const bool mayDiffer = computesNothing(named.op) || training::isOfLoss(named.name);
      auto known = nodes.find(named.name);
      if (known == nodes.end()) {
        const bool mayBeMetric = function.getName() != "final";
        if (mayDiffer || mayBeMetric || mayFoldOtherwise(named.op) || !place::nodeAttr.isOn(named.op)) continue;
        return named.op->emitOpError("is '") << named.name << "', which the decision does not name";
      }
      found.insert(named.name);
      place::Place place = place::of(named.op);
      if (decision.stages > 1) place.stage = known->second->stage;
      if (known->second->segment >= 0) place.segment = known->second->segment;
      place.recompute = known->second->again;
      place.set(named.op);
      FactorRule rule = cast<onnx::FactorRuleOpInterface>(named.op).getFactorRule();
      FactorSharding decided = known->second->split;
      Axes passing = known->second->passesPartial;
      if (auto stands = place::decidedFactorsAttr.of(named.op)) {
        decided = FactorSharding(rule.factors.size());
        passing.clear();
        for (auto [own, from] : llvm::enumerate(*stands))
          if (from >= 0 && from < static_cast<int64_t>(known->second->split.size()))
            decided[own] = known->second->split[from];
      }
      if (decided.size() != rule.factors.size()) { // fewer: a microbatch of one sample has no factor of samples
        if (mayDiffer || rule.factors.size() < decided.size()) continue;
        return named.op->emitOpError("has ")
               << rule.factors.size() << " factors, and the decision splits " << decided.size();
      }
      FactorSharding split = fitted(decision.mesh, rule, decided);
      dist::factorsAttr.set(named.op, FactorsAttr::get(&getContext(), split, passing));
    }
    // Nobody asks for the names any more, and kernels of the same form should not differ by them.
    function.walk([](Operation *op) {
      place::nodeAttr.remove(op);
      place::decidedFactorsAttr.remove(op);
    });
    return success();
  }

  LogicalResult applyParameters(ModuleOp module) {
    llvm::StringMap<const planner::ParameterDecision *> decided;
    const SymbolTable symbols(module);
    for (const planner::ParameterDecision &parameter : decision.parameters) {
      if (!decided.try_emplace(parameter.name, &parameter).second)
        return module.emitError("the decision names parameter '") << parameter.name << "' twice";
      auto param = symbols.lookup<onnx::ParamOp>(parameter.name);
      if (!param)
        return module.emitError("the decision names parameter '")
               << parameter.name << "', and the step has none of that name";
      const int64_t rank = cast<RankedTensorType>(param.getType()).getRank();
      for (const Sharding *layout : {&parameter.parameter, &parameter.gradient, &parameter.state})
        if (static_cast<int64_t>(layout->dims.size()) != rank)
          return param.emitOpError("has ") << rank << " dimensions, and the decision splits " << layout->dims.size();
    }
    for (auto param : module.getOps<onnx::ParamOp>()) {
      bool own = param.getRole() == "parameter" || param.getRole() == "running_statistic";
      bool version = param.getRole() == "previous_parameter";
      auto known = decided.find(own ? param.getSymName() : param.getOf().value_or(""));
      if (known == decided.end()) continue;
      const planner::ParameterDecision &layouts = *known->second;
      auto type = cast<RankedTensorType>(param.getType());
      auto put = [&](auto set, const Sharding &layout) {
        if (static_cast<int64_t>(layout.dims.size()) != type.getRank())
          return; // a state of another shape (Adafactor's)
        set(ShardingAttr::get(&getContext(), fitted(decision.mesh, layout, type.getShape())));
      };
      auto lie = [&](ShardingAttr layout) { param.setShardingAttr(layout); };
      if (own) {
        put(lie, layouts.parameter);
        put([&](ShardingAttr layout) { dist::updateShardingAttr.set(param, layout); }, layouts.state);
      } else if (version) {
        put(lie, layouts.parameter);
      } else if (param.getRole() == "optimizer_state") {
        put(lie, layouts.state);
      } else if (param.getRole() == "accumulator" && liesInParts(layouts.gradient)) {
        put(lie, layouts.gradient);
      }
      // Below ZeRO-2, which parameters may have each for itself, an accumulator holds each device's own sum:
      // PropagateShardings gives it the gradient's layout.
    }
    return success();
  }

  // Over the axes of ZeRO.
  bool liesInParts(const Sharding &layout) const {
    return llvm::any_of(decision.zeroAxes, [&](const std::string &axis) { return layout.uses(axis); });
  }

  planner::Decision decision;
  bool given = false, ofAnotherSize = false;
};

} // namespace

std::unique_ptr<Pass> createApplyDecision(planner::Decision decision, bool ofAnotherSize) {
  return std::make_unique<ApplyDecision>(std::move(decision), ofAnotherSize);
}

} // namespace cleave::partition
