#include "compiler/attention/softmax_pattern.h"
#include "dialects/onnx/facets/rule_building.h"

using namespace mlir;

namespace cleave::attention {
namespace {

Value throughStops(Value value) {
  while (auto stop = value.getDefiningOp<onnx::StopGradientOp>()) value = stop.getX();
  return value;
}

// The value that `value` repeats along `axis` alone; null if it is no such broadcast.
Value repeatedAlong(Value value, int64_t axis) {
  auto broadcast = value.getDefiningOp<onnx::BroadcastOp>();
  if (!broadcast) return {};
  int64_t rank = static_cast<int64_t>(broadcast.getShape().size());
  if (static_cast<int64_t>(broadcast.getDims().size()) != rank - 1) return {};
  return llvm::is_contained(broadcast.getDims(), axis) ? Value() : broadcast.getX();
}

// The probabilities made from the exponentials and their sum, which is told.
Value matchDivision(onnx::ExpOp exp, int64_t axis, onnx::ReduceSumOp &sumOfRow) {
  Value e = exp.getY();
  auto isSum = [&](Value value) {
    auto sum = throughStops(value).getDefiningOp<onnx::ReduceSumOp>();
    const bool is = sum && sum.getX() == e && sum.getAxes().size() == 1 && sum.getAxes()[0] == axis;
    if (is) sumOfRow = sum;
    return is;
  };
  for (Operation *user : e.getUsers()) {
    if (auto div = dyn_cast<onnx::DivOp>(user)) {
      Value sum = repeatedAlong(div.getB(), axis);
      if (div.getA() == e && sum && isSum(sum)) return div.getY();
    }
    if (auto mul = dyn_cast<onnx::MulOp>(user)) {
      Value factor = repeatedAlong(mul.getA() == e ? mul.getB() : mul.getA(), axis);
      auto reciprocal = factor ? factor.getDefiningOp<onnx::ReciprocalOp>() : onnx::ReciprocalOp();
      if (reciprocal && isSum(reciprocal.getX())) return mul.getY();
    }
  }
  return {};
}

// p' if all that reads p is its guard.
Value matchGuard(Value p) {
  onnx::IsNaNOp isNaN;
  onnx::WhereOp where;
  for (Operation *user : p.getUsers()) {
    if (auto test = dyn_cast<onnx::IsNaNOp>(user); test && !isNaN)
      isNaN = test;
    else if (auto choice = dyn_cast<onnx::WhereOp>(user); choice && !where)
      where = choice;
    else
      return {};
  }
  bool guard = isNaN && where && where.getCondition() == isNaN.getY() && isNaN->hasOneUse() && where.getB() == p &&
               onnx::rules::isZero(where.getA());
  return guard ? where.getY() : Value();
}

} // namespace

func::FuncOp modelOf(ModuleOp module) {
  auto model = module.lookupSymbol<func::FuncOp>("model");
  if (!model) module.emitError("has no function @model: the normalize phase makes it");
  return model;
}

std::optional<Softmax> matchSoftmax(onnx::ExpOp exp) {
  auto sub = exp.getX().getDefiningOp<onnx::SubOp>();
  auto shift = sub ? sub.getB().getDefiningOp<onnx::BroadcastOp>() : onnx::BroadcastOp();
  auto max = shift ? throughStops(shift.getX()).getDefiningOp<onnx::ReduceMaxOp>() : onnx::ReduceMaxOp();
  if (!max || max.getX() != sub.getA() || max.getAxes().size() != 1) return std::nullopt;
  Softmax softmax{.scores = sub.getA(), .probabilities = {}, .axis = max.getAxes()[0], .max = max, .sum = {}};
  if (!repeatedAlong(sub.getB(), softmax.axis)) return std::nullopt;
  softmax.probabilities = matchDivision(exp, softmax.axis, softmax.sum);
  if (!softmax.probabilities) return std::nullopt;
  if (Value guarded = matchGuard(softmax.probabilities)) {
    softmax.probabilities = guarded;
    softmax.zeroEmptyRows = true;
  }
  return softmax;
}

} // namespace cleave::attention
