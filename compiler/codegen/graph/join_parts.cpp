#include "compiler/codegen/codegen.h"
#include "dialects/dist/Dist.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <deque>
#include <map>

namespace cleave::codegen {
#define GEN_PASS_DEF_JOINPARTS
#include "compiler/codegen/Passes.h.inc"

using namespace mlir;
namespace {

// A term of a sum that is zero but for [first, end) of one dimension.
struct Part {
  Value term, x; // padded; what is padded
  int64_t axis = 0, first = 0, end = 0;
};
using Run = SmallVector<Part>;

std::optional<Part> partOf(Value value) {
  Value term = value;
  if (auto cast = term.getDefiningOp<onnx::CastOp>(); cast && cast->hasOneUse()) term = cast.getX();
  auto pad = term.getDefiningOp<onnx::PadOp>();
  if (!pad || !pad.getValue().isZero() || !pad->hasOneUse()) return std::nullopt;
  ArrayRef<int64_t> from = cast<RankedTensorType>(pad.getX().getType()).getShape();
  ArrayRef<int64_t> to = cast<RankedTensorType>(pad.getY().getType()).getShape();
  std::optional<Part> part;
  for (int64_t dim = 0; dim < int64_t(to.size()); ++dim) {
    if (from[dim] == to[dim]) continue;
    if (part || pad.getInterior()[dim] != 0) return std::nullopt;
    part = Part{value, pad.getX(), dim, pad.getLow()[dim], pad.getLow()[dim] + from[dim]};
  }
  return part;
}

// Parts that follow each other, from each that is left as many as there are. `parts` are in order.
SmallVector<Run> runsOf(ArrayRef<Part> parts) {
  std::map<std::pair<int64_t, int64_t>, std::deque<size_t>> left; // by axis and where they begin
  for (auto [i, part] : llvm::enumerate(parts)) left[{part.axis, part.first}].push_back(i);
  SmallVector<Run> runs;
  std::vector<bool> isTaken(parts.size(), false);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (isTaken[i]) continue;
    Run run;
    auto take = [&](std::deque<size_t> &from) {
      isTaken[from.front()] = true;
      run.push_back(parts[from.front()]);
      from.pop_front();
    };
    take(left[{parts[i].axis, parts[i].first}]); // it is the first that begins there and is left
    for (auto next = left.find({run.back().axis, run.back().end}); next != left.end() && !next->second.empty();
         next = left.find({run.back().axis, run.back().end}))
      take(next->second);
    runs.push_back(std::move(run));
  }
  return runs;
}

// Two runs are one where the gap between them is no longer than the longer of them.
SmallVector<Run> overGaps(SmallVector<Run> runs) {
  SmallVector<Run> joined;
  auto length = [](const Run &run) { return run.back().end - run.front().first; };
  for (Run &run : runs) {
    Run *before = llvm::find_if(joined, [&](const Run &other) {
      const int64_t gap = run.front().first - other.back().end;
      return other.front().axis == run.front().axis && gap >= 0 && gap <= std::max(length(other), length(run));
    });
    if (before == joined.end())
      joined.push_back(std::move(run));
    else
      before->append(run);
  }
  return joined;
}

// The parts side by side, with zeros where they do not fill the tensor.
Value join(onnx::SumOp sum, const Run &run) {
  OpBuilder builder(sum);
  auto inherit = [&](Operation *made) {
    made->setDiscardableAttrs(llvm::to_vector(sum->getDiscardableAttrs()));
    return made->getResult(0);
  };
  auto elementOf = [](Value value) { return cast<RankedTensorType>(value.getType()).getElementType(); };
  auto castTo = [&](Value value, Type element) {
    return elementOf(value) == element ? value : inherit(onnx::CastOp::create(builder, sum.getLoc(), value, element));
  };
  const auto whole = cast<RankedTensorType>(sum.getType());
  const auto axis = size_t(run.front().axis);
  const Type first = elementOf(run.front().x);
  const bool isOneType = llvm::all_of(run, [&](Part part) { return elementOf(part.x) == first; });
  const Type element = isOneType ? first : whole.getElementType();
  SmallVector<Value> values;
  int64_t end = run.front().first;
  for (Part part : run) {
    if (part.first > end) {
      SmallVector<int64_t> shape(whole.getShape());
      shape[axis] = part.first - end;
      auto zero = DenseElementsAttr::get(RankedTensorType::get({}, element), builder.getZeroAttr(element));
      Value one = inherit(onnx::ConstantOp::create(builder, sum.getLoc(), zero));
      values.push_back(inherit(onnx::BroadcastOp::create(builder, sum.getLoc(), one, shape, ArrayRef<int64_t>{})));
    }
    values.push_back(castTo(part.x, element));
    end = part.end;
  }
  Value joined = inherit(onnx::ConcatOp::create(builder, sum.getLoc(), values, int64_t(axis)));
  if (cast<RankedTensorType>(joined.getType()).getShape() != whole.getShape()) {
    SmallVector<int64_t> low(size_t(whole.getRank()), 0), high = low, interior = low;
    low[axis] = run.front().first;
    high[axis] = whole.getDimSize(unsigned(axis)) - end;
    joined = inherit(onnx::PadOp::create(builder, sum.getLoc(), joined, low, high, interior, APFloat(0.0)));
  }
  return castTo(joined, whole.getElementType());
}

// Who casts it back to the elements that it was cast from reads these.
void readBeforeCast(Value value) {
  auto widened = value.getDefiningOp<onnx::CastOp>();
  if (!widened) return;
  auto from = cast<RankedTensorType>(widened.getX().getType()).getElementType();
  if (!(from.isBF16() || from.isF16()) || !cast<RankedTensorType>(value.getType()).getElementType().isF32()) return;
  for (Operation *user : llvm::make_early_inc_range(value.getUsers()))
    if (auto back = dyn_cast<onnx::CastOp>(user); back && back.getY().getType() == widened.getX().getType()) {
      back.getY().replaceAllUsesWith(widened.getX());
      back.erase();
    }
  if (value.use_empty()) widened.erase();
}

void eraseUnused(Value value) {
  Operation *op = value.getDefiningOp();
  if (!value.use_empty() || !isa_and_nonnull<onnx::CastOp, onnx::PadOp>(op)) return;
  const Value from = op->getOperand(0);
  op->erase();
  eraseUnused(from);
}

void joinTerms(onnx::SumOp sum) {
  SmallVector<Part> parts;
  SmallVector<Value> terms, apart;
  for (Value term : sum->getOperands()) {
    if (std::optional<Part> part = partOf(term))
      parts.push_back(*part);
    else
      terms.push_back(term);
  }
  llvm::stable_sort(parts, [](const Part &a, const Part &b) {
    return std::tuple(a.axis, a.first, a.end) < std::tuple(b.axis, b.first, b.end);
  });
  SmallVector<Value> replaced;
  for (const Run &run : overGaps(runsOf(parts))) {
    if (run.size() < 2) {
      apart.push_back(run.front().term);
      continue;
    }
    terms.push_back(join(sum, run));
    for (Part part : run) replaced.push_back(part.term);
  }
  if (replaced.empty()) return;
  llvm::append_range(terms, apart);
  if (terms.size() > 1) {
    sum->setOperands(terms);
  } else {
    sum.getResult().replaceAllUsesWith(terms.front());
    sum.erase();
    readBeforeCast(terms.front());
  }
  for (Value term : replaced) eraseUnused(term);
}

// A sum of a device's own parts of such terms is its own part of their sum, which is returned to be joined.
onnx::SumOp addBeforeOwnPart(onnx::SumOp sum) {
  auto first = sum->getOperand(0).getDefiningOp<dist::OwnPartOp>();
  SmallVector<Value> wholes;
  for (Value term : sum->getOperands()) {
    auto own = term.getDefiningOp<dist::OwnPartOp>();
    if (!own || !own->hasOneUse() || own.getAxes() != first.getAxes() || own.getDim() != first.getDim() ||
        !partOf(own.getX()))
      return sum;
    wholes.push_back(own.getX());
  }
  OpBuilder builder(sum);
  auto whole = onnx::SumOp::create(builder, sum.getLoc(), wholes.front().getType(), wholes);
  whole->setDiscardableAttrs(llvm::to_vector(sum->getDiscardableAttrs()));
  first->moveBefore(sum);
  SmallVector<Value> parts(sum->getOperands());
  sum.getResult().replaceAllUsesWith(first.getResult());
  sum.erase();
  first.getXMutable().assign(whole);
  for (Value part : ArrayRef(parts).drop_front()) part.getDefiningOp()->erase();
  return whole;
}

struct JoinParts : impl::JoinPartsBase<JoinParts> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (auto sum : llvm::make_early_inc_range(function.getOps<onnx::SumOp>())) joinTerms(addBeforeOwnPart(sum));
  }
};

} // namespace
} // namespace cleave::codegen
