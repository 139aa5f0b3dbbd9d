// JoinParts: a sum of parts that lie side by side, each padded with zeros, is their concatenation.
//
//   %a = onnx.Pad %p {low = [0, 0], high = [0, 4]}     of two columns
//   %b = onnx.Pad %q {low = [0, 2], high = [0, 2]}     likewise
//   %g = onnx.Sum %a, %b, %c
//   ->   %j = onnx.Concat %p, %q {axis = 1}     %d = onnx.Pad %j {low = [0, 0], high = [0, 2]}
//        %g = onnx.Sum %c, %d
//
// Gradients of slices are such parts: of queries, keys and values, of a recurrence's time steps. As terms of a sum each
// would stand in memory in full size, mostly zeros. Where a device adds up its own part of each (ZeRO, of samples that
// do not divide), it takes its part of the sum instead.
#include "compiler/codegen/codegen.h"
#include "dialects/dist/Dist.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <deque>
#include <map>

namespace cleave::codegen {
using namespace mlir;
namespace {

// A term of a sum that is zero but for [first, end) of one dimension.
struct Part {
  onnx::PadOp pad;
  int64_t axis = 0, first = 0, end = 0;
};

std::optional<Part> partOf(Value term) {
  auto pad = term.getDefiningOp<onnx::PadOp>();
  if (!pad || !pad.getValue().isZero() || !pad->hasOneUse()) return std::nullopt;
  ArrayRef<int64_t> from = cast<RankedTensorType>(pad.getX().getType()).getShape();
  ArrayRef<int64_t> to = cast<RankedTensorType>(pad.getY().getType()).getShape();
  std::optional<Part> part;
  for (int64_t dim = 0; dim < int64_t(to.size()); ++dim) {
    if (from[dim] == to[dim]) continue;
    if (part || pad.getInterior()[dim] != 0) return std::nullopt;
    part = Part{pad, dim, pad.getLow()[dim], pad.getLow()[dim] + from[dim]};
  }
  return part;
}

// Takes those that follow each other out of `parts`, which are in order: from each that is left, as many as there are.
SmallVector<SmallVector<Part>> takeRuns(SmallVector<Part> &parts) {
  std::map<std::pair<int64_t, int64_t>, std::deque<size_t>> left; // by axis and where they begin
  for (auto [i, part] : llvm::enumerate(parts)) left[{part.axis, part.first}].push_back(i);
  SmallVector<SmallVector<Part>> runs;
  SmallVector<Part> alone;
  std::vector<bool> isTaken(parts.size(), false);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (isTaken[i]) continue;
    SmallVector<Part> run;
    auto take = [&](std::deque<size_t> &from) {
      isTaken[from.front()] = true;
      run.push_back(parts[from.front()]);
      from.pop_front();
    };
    take(left[{parts[i].axis, parts[i].first}]); // it is the first that begins there and is left
    for (auto next = left.find({run.back().axis, run.back().end}); next != left.end() && !next->second.empty();
         next = left.find({run.back().axis, run.back().end}))
      take(next->second);
    if (run.size() < 2)
      alone.push_back(run.front());
    else
      runs.push_back(std::move(run));
  }
  parts = std::move(alone);
  return runs;
}

// The parts side by side, with zeros where they do not fill the tensor.
Value join(onnx::SumOp sum, ArrayRef<Part> run) {
  OpBuilder builder(sum);
  auto inherit = [&](Operation *made) {
    made->setDiscardableAttrs(llvm::to_vector(sum->getDiscardableAttrs()));
    return made->getResult(0);
  };
  SmallVector<Value> values;
  for (Part part : run) values.push_back(part.pad.getX());
  const int64_t axis = run.front().axis;
  Value joined = inherit(onnx::ConcatOp::create(builder, sum.getLoc(), values, axis));
  auto whole = cast<RankedTensorType>(sum.getType());
  if (joined.getType() == whole) return joined;
  SmallVector<int64_t> low(size_t(whole.getRank()), 0), high = low, interior = low;
  low[size_t(axis)] = run.front().first;
  high[size_t(axis)] = whole.getDimSize(unsigned(axis)) - run.back().end;
  return inherit(onnx::PadOp::create(builder, sum.getLoc(), joined, low, high, interior, APFloat(0.0)));
}

void joinTerms(onnx::SumOp sum) {
  SmallVector<Part> parts;
  SmallVector<Value> terms;
  for (Value term : sum->getOperands()) {
    if (std::optional<Part> part = partOf(term))
      parts.push_back(*part);
    else
      terms.push_back(term);
  }
  llvm::stable_sort(parts, [](const Part &a, const Part &b) {
    return std::tuple(a.axis, a.first, a.end) < std::tuple(b.axis, b.first, b.end);
  });
  SmallVector<Operation *> unused;
  for (const SmallVector<Part> &run : takeRuns(parts)) {
    terms.push_back(join(sum, run));
    for (Part part : run) unused.push_back(part.pad);
  }
  if (unused.empty()) return;
  for (Part part : parts) terms.push_back(part.pad.getY());
  if (terms.size() > 1) {
    sum->setOperands(terms);
  } else {
    sum.getResult().replaceAllUsesWith(terms.front());
    sum.erase();
  }
  for (Operation *pad : unused) pad->erase();
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

struct JoinParts : PassWrapper<JoinParts, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(JoinParts)
  StringRef getArgument() const override { return "join-parts"; }
  StringRef getDescription() const override { return "sums of padded parts that lie side by side are concatenated"; }
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (auto sum : llvm::make_early_inc_range(function.getOps<onnx::SumOp>())) joinTerms(addBeforeOwnPart(sum));
  }
};

} // namespace

std::unique_ptr<Pass> createJoinParts() { return std::make_unique<JoinParts>(); }

} // namespace cleave::codegen
