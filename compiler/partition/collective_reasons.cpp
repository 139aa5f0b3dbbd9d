#include "compiler/partition/collective_reasons.h"
#include "compiler/partition/layouts.h"
#include "dialects/onnx/kinds.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {
namespace {

StringRef nodeOf(Operation *op) {
  auto location = op->getLoc()->findInstanceOf<NameLoc>();
  return location ? location.getName().getValue() : StringRef();
}

// The operation that made a value, before it was brought to other layouts.
Operation *makerOf(Value value) {
  while (auto reshard = value.getDefiningOp<dist::ReshardOp>()) value = reshard.getX();
  return value.getDefiningOp();
}

Operation *firstUser(dist::ReshardOp op) {
  Operation *first = nullptr;
  for (Operation *user : op.getY().getUsers())
    if (!first || user->isBeforeInBlock(first)) first = user;
  return first;
}

std::string joined(const Axes &axes) { return llvm::join(axes, ","); }

bool isReduction(const ReshardStep &step) {
  return step.kind == Collective::AllReduce || step.kind == Collective::ReduceScatter;
}

} // namespace

// From each write of a parameter (or of what belongs to one) back through the update's elementwise work.
CollectiveReasons::CollectiveReasons(func::FuncOp function, const SymbolTable &symbols) : symbols(symbols) {
  for (Operation &op : llvm::reverse(function.getBody().front())) {
    if (auto write = dyn_cast<onnx::WriteOp>(op)) {
      auto param = symbols.lookup<onnx::ParamOp>(write.getParam());
      if (param) belongsTo.try_emplace(write.getValue(), param.getOf().value_or(param.getSymName()));
      continue;
    }
    bool sameForm = op.hasTrait<onnx::PerElement>() || onnx::isRearrangement(&op) || isa<dist::ReshardOp>(op);
    if (!sameForm || op.getNumResults() != 1 || phaseOf(&op) != Phase::Update) continue;
    auto known = belongsTo.find(op.getResult(0));
    if (known == belongsTo.end()) continue;
    StringRef name = known->second;
    for (Value operand : op.getOperands()) belongsTo.try_emplace(operand, name);
  }
}

std::string CollectiveReasons::parameterName(StringRef name) const {
  auto param = symbols.lookup<onnx::ParamOp>(name);
  if (!param || !param.getUsedBy() || name.find_first_of("./") != StringRef::npos) return name.str();
  return (name + " (of " + *param.getUsedBy() + ")").str();
}

std::string CollectiveReasons::subject(dist::ReshardOp op, const ReshardStep &step) const {
  Operation *maker = makerOf(op.getX());
  if (auto read = dyn_cast_or_null<onnx::ReadOp>(maker)) return parameterName(read.getParam());
  auto owner = belongsTo.find(op.getX());
  if (owner != belongsTo.end()) {
    // A value that the backward pass hands over, or that has still to be summed, is the gradient; the rest is made from
    // it.
    bool gradient = !maker || phaseOf(maker) == Phase::Backward || isReduction(step);
    return (gradient ? "gradient of " : "new value of ") + parameterName(owner->second);
  }
  if (!maker) return "a model input";
  std::string node = nodeOf(maker).str();
  if (node.empty()) node = "a " + maker->getName().stripDialect().str();
  return (phaseOf(maker) == Phase::Backward && node != "loss" ? "gradients at " : "") + node;
}

std::string CollectiveReasons::tensor(dist::ReshardOp op) const {
  Operation *maker = makerOf(op.getX());
  if (auto read = dyn_cast_or_null<onnx::ReadOp>(maker)) return read.getParam().str();
  auto owner = belongsTo.find(op.getX());
  if (owner != belongsTo.end()) return owner->second.str();
  if (!maker) return "a model input";
  // A gradient's first reader is the backward pass of what made the tensor.
  Operation *reader = phaseOf(maker) == Phase::Backward ? firstUser(op) : nullptr;
  StringRef node = nodeOf(reader && phaseOf(reader) == Phase::Backward ? reader : maker);
  return node.empty() ? "a " + maker->getName().stripDialect().str() : node.str();
}

// The exported node that reads the result first, where that is another one than the node that makes it.
std::string CollectiveReasons::purpose(dist::ReshardOp op) const {
  Operation *first = firstUser(op);
  if (!first || belongsTo.contains(op.getX()) || isa<onnx::WriteOp, func::ReturnOp>(first)) return "";
  std::string node = nodeOf(first).str();
  Operation *maker = makerOf(op.getX());
  if (node.empty() || (maker && node == nodeOf(maker) && (phaseOf(maker) == phaseOf(first) || node == "loss")))
    return "";
  return (phaseOf(first) == Phase::Backward ? " for the gradients at " : " for ") + node;
}

std::string CollectiveReasons::reason(dist::ReshardOp op, const ReshardStep &step) const {
  std::string what = subject(op, step), over = joined(step.axes);
  bool owned = belongsTo.contains(op.getX());
  if (step.kind == Collective::AllReduce && purpose(op) == " for grad_norm") return "gradients' norm over " + over;
  std::string sum = step.reduction == Reduction::Sum ? "sums" : step.reduction == Reduction::Max ? "maxima" : "minima";
  std::string reduced = owned ? what + " summed over " + over : "partial " + sum + " of " + what + " over " + over;
  switch (step.kind) {
  case Collective::AllReduce:
    return reduced + purpose(op);
  case Collective::ReduceScatter:
    return reduced + ", each keeps its part" + purpose(op);
  case Collective::AllGather:
    return what + " gathered over " + over + purpose(op);
  case Collective::AllToAll:
    return what + ": split by dimension " + std::to_string(step.splitDim) + " instead of " + std::to_string(step.dim) +
           " over " + over + purpose(op);
  case Collective::OwnPart:
    return "own part of " + what + " over " + over + purpose(op);
  default:
    return what;
  }
}

} // namespace cleave::partition
