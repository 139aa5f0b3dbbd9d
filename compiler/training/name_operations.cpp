#include "compiler/training/node_names.h"
#include "compiler/training/step_function.h"
#include "compiler/training/training.h"
#include "dialects/onnx/kinds.h"
#include "dialects/place/Place.h"

using namespace mlir;

namespace cleave::training {
#define GEN_PASS_DEF_NAMEOPERATIONS
#include "compiler/training/Passes.h.inc"

bool isOfLoss(StringRef name) {
  const StringRef node = name.split(':').first;
  return node == "loss" || node == partOfBatch;
}

std::vector<NamedOperation> forwardOperations(func::FuncOp function) {
  struct Node {
    size_t main = 0; // index of the operation that does most of the arithmetic
    double flops = -1;
    llvm::SmallDenseMap<StringRef, int> count;
  };
  std::vector<NamedOperation> result;
  std::vector<StringRef> nodeOf;
  llvm::StringMap<Node> nodes;
  auto module = function->getParentOfType<ModuleOp>();
  const bool areNamed = module && place::nodesAttr.isOn(module);
  for (Operation &op : function.getBody().front()) {
    if (place::phaseOf(&op) != place::Phase::Forward || !isa<onnx::FactorRuleOpInterface>(op)) continue;
    if (onnx::isConstant(&op) || onnx::fp8ScalingAttr.isOn(&op)) continue;
    auto location = op.getLoc()->findInstanceOf<NameLoc>();
    const StringRef name = location ? location.getName().getValue() : StringRef("?");
    auto &[key, node] = *nodes.try_emplace(name).first;
    auto cost = dyn_cast<onnx::CostOpInterface>(op);
    if (const double flops = cost ? cost.getFlops() : 0; flops > node.flops) {
      node.flops = flops;
      node.main = result.size();
    }
    nodeOf.push_back(key);
    result.push_back({&op, ""});
  }
  for (size_t i = 0; i < result.size(); ++i) {
    auto &[op, name] = result[i];
    if (auto known = place::nodeAttr.of(op)) {
      name = known->str();
      continue;
    }
    Node &node = nodes[nodeOf[i]];
    const StringRef kind = op->getName().stripDialect();
    const int number = ++node.count[kind];
    if (!areNamed && nodeOf[i] != "?" && node.main == i)
      name = nodeOf[i].str();
    else
      name = (nodeOf[i] + (areNamed ? ":+" : ":") + kind + (number > 1 ? "." + Twine(number) : Twine())).str();
  }
  return result;
}

namespace {

struct NameOperations : impl::NameOperationsBase<NameOperations> {
  void runOnOperation() final {
    func::FuncOp model = findFunction(getOperation(), "model", "the normalize phase");
    if (!model) return signalPassFailure();
    std::vector<std::string> names;
    for (NamedOperation &named : forwardOperations(model)) {
      place::nodeAttr.set(named.op, named.name);
      names.push_back(std::move(named.name));
    }
    place::nodesAttr.set(getOperation(), names);
  }
};

} // namespace
} // namespace cleave::training
