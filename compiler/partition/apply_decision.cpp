// ApplyDecision: what the planner decided, written on the module.
//
//   onnx.param @w ... {sharding = #dist.sharding<"[{},{tp}]">, cleave.update_sharding = #dist.sharding<"[{dp},{tp}]">}
//   %y = onnx.Contract %x, %w {cleave.factors = [["dp"], ["tp"], []], cleave.segment = 3, cleave.again}
//       the last two are for Recompute
//
// A decision is made for @final; the other functions hold the same forward operations under the same names. An
// operation the decision does not know is left to PropagateShardings.
#include "compiler/partition/layouts.h"
#include "compiler/partition/passes.h"
#include "compiler/partition/stages.h"
#include <llvm/Support/MemoryBuffer.h>

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
namespace {

struct ApplyDecision : PassWrapper<ApplyDecision, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ApplyDecision)
  ApplyDecision() = default;
  explicit ApplyDecision(planner::Decision decided) : decision(std::move(decided)), given(true) {}
  ApplyDecision(const ApplyDecision &other) : PassWrapper(other), decision(other.decision), given(other.given) {}

  StringRef getArgument() const override { return "apply-decision"; }
  StringRef getDescription() const override { return "write the planner's decision on the module"; }
  void getDependentDialects(DialectRegistry &registry) const override { registry.insert<DistDialect>(); }

  void runOnOperation() override {
    if (!given && failed(readFile())) return signalPassFailure();
    ModuleOp module = getOperation();
    Builder builder(module.getContext());
    module->setAttr(meshAttr, builder.getStringAttr(decision.mesh.str()));
    module->setAttr(zeroAxesAttr, axesAttribute(module.getContext(), decision.zeroAxes));
    module->setAttr(batchAxesAttr, axesAttribute(module.getContext(), decision.batchAxes));
    if (decision.gathersAgain) module->setAttr(gathersAgainAttr, builder.getUnitAttr());
    llvm::StringMap<const planner::NodeDecision *> nodes;
    for (const planner::NodeDecision &node : decision.nodes) nodes[node.node] = &node;
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal()) applyNodes(function, nodes);
    applyParameters(module);
  }

private:
  LogicalResult readFile() {
    auto buffer = llvm::MemoryBuffer::getFile(file);
    if (!buffer) return getOperation().emitError("cannot read the decision file '") << file << "'";
    auto parsed = planner::Decision::parse((*buffer)->getBuffer().str(), file);
    if (!parsed.isOk()) return getOperation().emitError(parsed.status().message());
    decision = std::move(*parsed);
    return success();
  }

  void applyNodes(func::FuncOp function, const llvm::StringMap<const planner::NodeDecision *> &nodes) {
    for (const NamedOperation &named : forwardOperations(function)) {
      auto known = nodes.find(named.name);
      if (known == nodes.end()) continue;
      if (decision.stages > 1)
        named.op->setAttr(stageAttr, IntegerAttr::get(IntegerType::get(&getContext(), 64), known->second->stage));
      if (known->second->segment >= 0)
        named.op->setAttr(segmentAttr, IntegerAttr::get(IntegerType::get(&getContext(), 64), known->second->segment));
      if (known->second->again) named.op->setAttr(againAttr, UnitAttr::get(&getContext()));
      FactorRule rule = cast<onnx::FactorRuleOpInterface>(named.op).getFactorRule();
      FactorSharding decided = known->second->split;
      Axes passing = known->second->passesPartial;
      if (auto stands = named.op->getAttrOfType<DenseI64ArrayAttr>(decidedFactorsAttr)) {
        decided = FactorSharding(rule.factors.size());
        passing.clear();
        for (auto [own, from] : llvm::enumerate(stands.asArrayRef()))
          if (from >= 0 && from < static_cast<int64_t>(known->second->split.size()))
            decided[own] = known->second->split[from];
      }
      if (decided.size() != rule.factors.size()) continue;
      FactorSharding split = fitted(decision.mesh, rule, decided);
      named.op->setAttr(factorsAttr, factorsAttribute(&getContext(), split));
      named.op->setAttr(partialAttr, axesAttribute(&getContext(), passing));
    }
    // Nobody asks for the names any more, and kernels of the same form should not differ by them.
    function.walk([](Operation *op) {
      op->removeDiscardableAttr(nodeAttr);
      op->removeDiscardableAttr(decidedFactorsAttr);
    });
  }

  void applyParameters(ModuleOp module) {
    llvm::StringMap<const planner::ParameterDecision *> decided;
    for (const planner::ParameterDecision &parameter : decision.parameters) decided[parameter.name] = &parameter;
    for (auto param : module.getOps<onnx::ParamOp>()) {
      bool own = param.getRole() == "parameter" || param.getRole() == "running_statistic";
      bool version = param.getRole() == "previous_parameter";
      auto known = decided.find(own ? param.getSymName() : param.getOf().value_or(""));
      if (known == decided.end()) continue;
      const planner::ParameterDecision &layouts = *known->second;
      auto type = cast<RankedTensorType>(param.getType());
      auto set = [&](StringRef name, const Sharding &layout) {
        if (static_cast<int64_t>(layout.dims.size()) != type.getRank()) return;
        Sharding fits = fitted(decision.mesh, layout, type.getShape());
        param->setAttr(name, ShardingAttr::get(&getContext(), fits));
      };
      if (own) {
        set("sharding", layouts.parameter);
        set(updateLayoutAttr, layouts.state);
      } else if (version) {
        set("sharding", layouts.parameter);
      } else if (param.getRole() == "optimizer_state") {
        set("sharding", layouts.state);
      } else if (param.getRole() == "accumulator" && liesInParts(layouts.gradient)) {
        set("sharding", layouts.gradient);
      }
      // Below ZeRO-2, which parameters may have each for itself, an accumulator holds each device's own sum:
      // PropagateShardings gives it the gradient's layout.
    }
  }

  // Over the axes of ZeRO.
  bool liesInParts(const Sharding &layout) const {
    return llvm::any_of(decision.zeroAxes, [&](const std::string &axis) { return layout.uses(axis); });
  }

  planner::Decision decision;
  bool given = false;
  Option<std::string> file{*this, "file", llvm::cl::desc("a decision as text (planner/decision.h)")};
};

} // namespace

std::unique_ptr<Pass> createApplyDecision(planner::Decision decision) {
  return std::make_unique<ApplyDecision>(std::move(decision));
}
std::unique_ptr<Pass> createApplyDecision() { return std::make_unique<ApplyDecision>(); }

} // namespace cleave::partition
