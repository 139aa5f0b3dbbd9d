#include "compiler/partition/update_work.h"
#include "compiler/partition/layouts.h"
#include "compiler/training/step_function.h"
#include "dialects/onnx/kinds.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace cleave::partition {
namespace {

// One update, when its parameter lies split along a dimension: which values lie split then, and what is exchanged.
class SplitUpdate {
public:
  SplitUpdate(ArrayRef<Operation *> operations, ArrayRef<int64_t> shape, int64_t dim) {
    for (Operation *op : operations)
      for (Value operand : op->getOperands())
        if (isGiven(operand, op) && ArrayRef<int64_t>(shapeOf(operand)) == shape) splitDim[operand] = dim;
    for (Operation *op : operations) add(op);
  }
  planner::UpdateWork::Split work;

private:
  // The parameter, its gradient and its states.
  static bool isGiven(Value value, Operation *reader) {
    Operation *made = value.getDefiningOp();
    if (!made || isa<onnx::ReadOp>(made)) return true;
    return !onnx::isConstant(made) && place::ruleAttr.of(made) != place::ruleAttr.of(reader);
  }

  void add(Operation *op) {
    auto rules = dyn_cast<onnx::FactorRuleOpInterface>(op);
    if (!rules || onnx::isResident(op)) return;
    const dist::FactorRule rule = rules.getFactorRule();
    int64_t factor = -1; // that the devices divide among them
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      auto found = splitDim.find(operand);
      if (found == splitDim.end()) continue;
      const int64_t asked = planner::majorFactor(rule, rule.operands[index][size_t(found->second)]);
      const bool canSplit = asked >= 0 && rule.factors[size_t(asked)].kind != dist::Factor::Whole;
      if (factor < 0 && canSplit) factor = asked;
      if (!canSplit || asked != factor) gather(operand);
    }
    if (factor < 0) {
      if (auto contract = dyn_cast<onnx::ContractOp>(op)) work.wholeFlops += contract.getFlops();
      return;
    }
    const bool isSum = rule.factors[size_t(factor)].kind == dist::Factor::Reduced;
    for (auto [index, result] : llvm::enumerate(op->getResults()))
      if (isSum) {
        work.summed += bytesOf(result.getType());
        ++work.sums;
      } else if (const int64_t dim = planner::dimOf(rule, rule.results[index], factor); dim >= 0) {
        splitDim[result] = dim;
      }
  }

  void gather(Value value) {
    if (!gathered.insert(value).second) return;
    work.gathered += bytesOf(value.getType());
    ++work.gathers;
  }

  DenseMap<Value, int64_t> splitDim;
  DenseSet<Value> gathered;
};

} // namespace

llvm::StringMap<planner::UpdateWork> updateWork(func::FuncOp step, const SymbolTable &symbols) {
  llvm::MapVector<StringRef, SmallVector<Operation *>> operationsOf;
  for (Operation &op : step.getBody().front())
    if (auto rule = place::ruleAttr.of(&op)) operationsOf[*rule].push_back(&op);
  llvm::StringMap<planner::UpdateWork> result;
  for (const auto &[name, operations] : operationsOf) {
    auto param = symbols.lookup<onnx::ParamOp>(name);
    if (!param) continue;
    planner::UpdateWork &work = result[name];
    for (Operation *op : operations)
      if (auto contract = dyn_cast<onnx::ContractOp>(op)) {
        work.flops += contract.getFlops();
        ++work.products;
      }
    const auto shape = cast<RankedTensorType>(param.getType()).getShape();
    for (int64_t dim = 0; dim < int64_t(shape.size()); ++dim)
      work.splits.push_back(SplitUpdate(operations, shape, dim).work);
  }
  return result;
}

} // namespace cleave::partition
