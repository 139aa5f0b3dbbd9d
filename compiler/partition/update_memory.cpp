#include "compiler/partition/update_memory.h"
#include "compiler/partition/layouts.h"
#include "compiler/training/loss_scale.h"
#include "compiler/training/step_function.h"
#include "dialects/onnx/kinds.h"
#include <map>

using namespace mlir;

namespace cleave::partition {
namespace {

bool isFused(Operation *op) { return onnx::is(op, onnx::LoweringKind::Fused); }

// The sign of an overflow for all elements, which a kernel has at hand.
bool isSign(Operation *op) {
  auto broadcast = dyn_cast<onnx::BroadcastOp>(op);
  if (!broadcast) return false;
  auto type = cast<RankedTensorType>(broadcast.getX().getType());
  return type.getNumElements() == 1 && type.getElementType().isInteger(1);
}

class UpdateMemory {
public:
  UpdateMemory(func::FuncOp step, const SymbolTable &symbols)
      : block(step.getBody().front()), symbols(symbols), skipsSteps(symbols.lookup(training::skippedName)) {
    for (Operation &op : llvm::reverse(block)) own(&op);
    for (Operation &op : block) number(&op);
  }

  llvm::StringMap<double> find() {
    llvm::StringMap<std::map<int, double>> changes; // bytes that come, by kernel
    llvm::StringMap<double> inPlace;                // of them: what lies where the gradient was
    for (Operation &op : block) {
      if (!kernels.contains(&op)) continue;
      const StringRef owner = owners.lookup(&op);
      for (Value result : op.getResults()) {
        const int last = lastReader(result);
        if (last < 0 || onnx::isAlias(&op) || isSign(&op) || (isFused(&op) && last == kernels[&op])) continue;
        changes[owner][kernels[&op]] += bytesOf(result.getType());
        changes[owner][last + 1] -= bytesOf(result.getType());
        if (llvm::any_of(result.getUsers(), [&](Operation *user) { return keepsOld(user, &op); }))
          inPlace[owner] = std::max(inPlace[owner], bytesOf(result.getType()));
      }
    }
    llvm::StringMap<double> most;
    for (auto &entry : changes) {
      double bytes = 0;
      for (auto [kernel, change] : entry.second) most[entry.first()] = std::max(most[entry.first()], bytes += change);
      most[entry.first()] -= inPlace[entry.first()];
    }
    return most;
  }

private:
  // The parameter that all that is made of its result updates; empty: several, as a norm of all gradients does.
  void own(Operation *op) {
    if (phaseOf(op) != Phase::Update) return;
    if (auto write = dyn_cast<onnx::WriteOp>(op)) {
      auto param = symbols.lookup<onnx::ParamOp>(write.getParam());
      owners[op] = param && param.getOf() ? *param.getOf() : write.getParam();
      return;
    }
    std::optional<StringRef> owner;
    for (Operation *user : op->getUsers())
      if (auto found = owners.find(user); found != owners.end())
        owner = !owner || *owner == found->second ? found->second : StringRef();
    if (owner) owners[op] = *owner;
  }

  // Kernels of one update, one after the other: what is read through a reduction or a product is another one's. What
  // all updates wait for comes before them.
  void number(Operation *op) {
    if (owners.lookup(op).empty() || !isa<onnx::LoweringOpInterface>(op) || onnx::isConstant(op)) return;
    int kernel = 0;
    for (Value operand : op->getOperands())
      if (Operation *made = operand.getDefiningOp(); made && kernels.contains(made)) {
        const bool isOther = !isFused(op) || !isFused(made) || onnx::isReduction(made) || keepsOld(op, made);
        kernel = std::max(kernel, kernels[made] + (isOther && !onnx::isAlias(op) && !onnx::isAlias(made) ? 1 : 0));
      }
    kernels[op] = kernel;
  }

  // Chooses between a state and the new one, which a rule makes with its sums (m of LAMB, but not w): after these,
  // since sums over devices and the sign of an overflow (SkipSteps) are between the two.
  bool keepsOld(Operation *op, Operation *made) const {
    return skipsSteps && isa<onnx::WhereOp>(op) && place::ruleAttr.isOn(made) &&
           llvm::any_of(made->getUsers(), [](Operation *user) { return place::ruleAttr.isOn(user); });
  }

  // The kernel that reads a value last, in this shape or another one; -1: none, it is only written to where it stays.
  int lastReader(Value value) {
    int last = -1;
    for (Operation *user : value.getUsers()) {
      if (onnx::isAlias(user))
        last = std::max(last, lastReader(user->getResult(0)));
      else if (kernels.contains(user))
        last = std::max(last, kernels[user]);
    }
    return last;
  }

  Block &block;
  const SymbolTable &symbols;
  const bool skipsSteps;
  llvm::DenseMap<Operation *, StringRef> owners;
  llvm::DenseMap<Operation *, int> kernels;
};

} // namespace

llvm::StringMap<double> updateMemory(func::FuncOp step, const SymbolTable &symbols) {
  return UpdateMemory(step, symbols).find();
}

} // namespace cleave::partition
