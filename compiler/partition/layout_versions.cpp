#include "compiler/partition/layout_versions.h"
#include "dialects/onnx/facets/rule_building.h"
#include "dialects/onnx/kinds.h"
#include "dialects/place/Place.h"
#include <algorithm>
#include <limits>

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {

void annotate(Operation *op, const FactorSharding &split, ArrayRef<Sharding> results) {
  dist::factorsAttr.set(op, FactorsAttr::get(op->getContext(), split));
  SmallVector<Attribute> layouts;
  for (const Sharding &layout : results) layouts.push_back(ShardingAttr::get(op->getContext(), layout));
  dist::resultsAttr.set(op, ArrayAttr::get(op->getContext(), layouts));
}

void LayoutVersions::define(Value value, Sharding layout) {
  Operation *maker = value.getDefiningOp();
  versions[value] = {{value, std::move(layout), maker ? phaseOf(maker) : Phase::Forward}};
}

bool LayoutVersions::pending(Value value) const {
  return llvm::all_of(versions.find(value)->second, [](const Version &v) { return !v.layout.partial.empty(); });
}

bool LayoutVersions::usable(const Version &version, const Sharding &wanted, Phase phase, Value value) const {
  for (const std::string &axis : wanted.partial)
    if (!contains(version.layout.partial, axis)) return false;
  bool own = version.value == value;
  if (own || version.phase == phase) return true;
  if (value.getDefiningOp<onnx::ReadOp>()) return false;
  if (!gathersAgain) return true;
  double bytes = localBytes(mesh, value.getType(), version.layout);
  return llvm::all_of(versions.find(value)->second,
                      [&](const Version &other) { return localBytes(mesh, value.getType(), other.layout) >= bytes; });
}

const LayoutVersions::Version *LayoutVersions::cheapest(Value value, const Sharding &wanted, Phase phase) const {
  const Version *best = nullptr;
  double bestBytes = 0;
  for (const Version &version : versions.find(value)->second) {
    if (!usable(version, wanted, phase, value)) continue;
    double bytes = reshardBytes(mesh, value.getType(), version.layout, wanted);
    bool exact = version.layout == wanted;
    if (!best || bytes < bestBytes || (exact && bytes <= bestBytes)) best = &version, bestBytes = bytes;
  }
  return best;
}

double LayoutVersions::reshardPrice(Value value, const Sharding &wanted, Phase phase) const {
  const Version *best = cheapest(value, wanted, phase);
  return best ? reshardBytes(mesh, value.getType(), best->layout, wanted) : 0;
}

double LayoutVersions::price(Value value, const Sharding &wanted, Phase phase) const {
  const double bytes = reshardPrice(value, wanted, phase);
  return bytes > 0 ? std::min(bytes, priceAgain(value, wanted, phase)) : 0;
}

bool LayoutVersions::isGenerated(Value value) const {
  if (auto known = generated.find(value); known != generated.end()) return known->second;
  Operation *op = value.getDefiningOp();
  bool result = false;
  if (!op || op->getNumResults() != 1 || !versions.contains(value) || !layout(value).partial.empty()) {
    result = false;
  } else if (onnx::isGenerator(op)) {
    result = true;
  } else if (auto broadcast = dyn_cast<onnx::BroadcastOp>(op)) {
    result = layout(broadcast.getX()).partial.empty();
  } else if (op->hasTrait<onnx::PerElement>() || onnx::isRearrangement(op)) {
    result = llvm::all_of(op->getOperands(), [&](Value operand) { return isGenerated(operand); });
  }
  return generated[value] = result;
}

double LayoutVersions::priceAgain(Value value, const Sharding &wanted, Phase phase) const {
  constexpr double never = std::numeric_limits<double>::infinity();
  Operation *op = value.getDefiningOp();
  if (!isGenerated(value) && !isa_and_nonnull<onnx::BroadcastOp>(op)) return never;
  FactorRule rule = cast<onnx::FactorRuleOpInterface>(op).getFactorRule();
  std::vector<const Sharding *> none(op->getNumOperands());
  FactorSharding split = inferFactorSharding(mesh, rule, none, {&wanted}, {});
  if (resultSharding(rule, split, 0) != wanted) return never;
  double bytes = 0;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    if (!versions.contains(operand)) return never;
    bytes += price(operand, operandSharding(rule, split, index), phase);
  }
  return bytes;
}

// The operation again, in the layout that is wanted. Null when its factors cannot take that layout.
Value LayoutVersions::regenerate(Value value, const Sharding &wanted, Operation *user) {
  Operation *op = value.getDefiningOp();
  FactorRule rule = cast<onnx::FactorRuleOpInterface>(op).getFactorRule();
  std::vector<const Sharding *> none(op->getNumOperands());
  FactorSharding split = inferFactorSharding(mesh, rule, none, {&wanted}, {});
  if (resultSharding(rule, split, 0) != wanted) return {};
  // An operation keeps its original operands until the function is done, so all of them are known here.
  SmallVector<Value> operands;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    if (!versions.contains(operand)) return {};
    operands.push_back(get(operand, operandSharding(rule, split, index), user));
  }
  OpBuilder builder(user);
  Operation *copy = builder.clone(*op);
  copy->setOperands(operands);
  if (phaseOf(user) != phaseOf(op))
    place::setStage(copy, std::nullopt); // it runs where it is read, as a resharding does
  place::setPhase(copy, phaseOf(user));
  annotate(copy, split, wanted);
  return copy->getResult(0);
}

// A whole value as a partial sum: every device of the group takes its share.
Value LayoutVersions::spread(Value value, const Sharding &layout, const Axes &axes, Operation *user) {
  OpBuilder builder(user);
  auto type = cast<RankedTensorType>(value.getType());
  Location loc = user->getLoc();
  FactorSharding split;
  for (const Axes &dim : layout.dims) split.push_back(dim);
  double share = 1.0 / static_cast<double>(mesh.groupSize(axes));
  auto constant = onnx::ConstantOp::create(
      builder, loc, type, DenseElementsAttr::get(type, builder.getFloatAttr(type.getElementType(), share)));
  auto product = onnx::MulOp::create(builder, loc, type, value, constant);
  for (Operation *op : {constant.getOperation(), product.getOperation()}) {
    place::setPhase(op, phaseOf(user));
    annotate(op, split, layout);
  }
  return product;
}

Value LayoutVersions::get(Value value, const Sharding &wanted, Operation *user) {
  // A function's result belongs to the phase that made it.
  Operation *maker = value.getDefiningOp();
  const Phase phase = phaseOf(isa<func::ReturnOp>(user) && maker ? maker : user);
  const Version *source = cheapest(value, wanted, phase);
  if (!source) {
    // Only an accumulator wants a partial sum where there is a whole value.
    Sharding whole = wanted;
    Axes missing;
    whole.partial.clear();
    for (const std::string &axis : wanted.partial)
      (contains(layout(value).partial, axis) ? whole.partial : missing).push_back(axis);
    Value there = get(value, whole, user);
    return onnx::rules::isZero(there) ? there : spread(there, whole, missing, user);
  }
  if (source->layout == wanted) return source->value;
  auto steps = reshard(mesh, source->layout, wanted);
  if (steps.empty()) return source->value;
  Version made{{}, wanted, phase};
  bool cutsOnly = llvm::all_of(reshard(mesh, layout(value), wanted),
                               [](const ReshardStep &step) { return step.kind == Collective::OwnPart; });
  const double bytes = reshardPrice(value, wanted, phase);
  if (cutsOnly ? isGenerated(value) : priceAgain(value, wanted, phase) < bytes)
    made.value = regenerate(value, wanted, user);
  if (!made.value) {
    OpBuilder builder(user);
    auto layoutOf = [&](const Sharding &layout) { return ShardingAttr::get(user->getContext(), layout); };
    source = cheapest(value, wanted, phase); // regenerate may have moved the table
    Location loc = value.getDefiningOp() ? value.getDefiningOp()->getLoc() : user->getLoc();
    auto op = dist::ReshardOp::create(builder, loc, source->value, layoutOf(source->layout), layoutOf(wanted));
    place::setPhase(op, phase);
    made.value = op.getY();
  }
  versions[value].push_back(made);
  return made.value;
}

} // namespace cleave::partition
