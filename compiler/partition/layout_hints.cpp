#include "compiler/partition/layout_hints.h"
#include "dialects/onnx/kinds.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
namespace {

size_t splittingAxes(const Sharding &layout) {
  size_t count = 0;
  for (const Axes &axes : layout.dims) count += axes.size();
  return count;
}

// Where an update computes in another layout than the one its parameter is stored in, ApplyDecision says so. A sum of
// gradients that has no layout yet is what that update will read.
Sharding updateLayout(const Mesh &mesh, onnx::ParamOp param, SymbolTable &symbols) {
  if (param.getRole() == "accumulator" && !param.getSharding() && param.getOf())
    if (auto parameter = symbols.lookup<onnx::ParamOp>(*param.getOf())) return updateLayout(mesh, parameter, symbols);
  auto update = dist::updateShardingAttr.of(param);
  return update ? update.getSharding() : homeOf(mesh, param);
}

} // namespace

DenseMap<Value, Sharding> layoutHints(func::FuncOp function, const Mesh &mesh, SymbolTable &symbols) {
  DenseMap<Value, Sharding> hints;
  auto offer = [&](Value value, Sharding layout) {
    layout.partial.clear();
    if (splittingAxes(layout) == 0) return;
    auto [entry, fresh] = hints.try_emplace(value, layout);
    if (!fresh && splittingAxes(layout) > splittingAxes(entry->second)) entry->second = layout;
  };
  for (Operation &op : llvm::reverse(function.getBody().front())) {
    if (auto write = dyn_cast<onnx::WriteOp>(op)) {
      if (auto param = symbols.lookup<onnx::ParamOp>(write.getParam()))
        offer(write.getValue(), updateLayout(mesh, param, symbols));
      continue;
    }
    bool transparent = op.hasTrait<onnx::PerElement>() || onnx::isRearrangement(&op);
    if (!transparent || op.getNumResults() != 1) continue;
    auto known = hints.find(op.getResult(0));
    if (known == hints.end()) continue;
    Sharding wanted = known->second;
    FactorRule rule = cast<onnx::FactorRuleOpInterface>(op).getFactorRule();
    std::vector<const Sharding *> operands(op.getNumOperands());
    FactorSharding split = inferFactorSharding(mesh, rule, operands, {&wanted}, {});
    for (size_t i = 0; i < operands.size(); ++i) offer(op.getOperand(i), operandSharding(rule, split, i));
  }
  return hints;
}

} // namespace cleave::partition
