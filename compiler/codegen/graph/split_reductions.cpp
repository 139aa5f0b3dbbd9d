#include "compiler/codegen/clusters/kernel_domain.h"
#include "compiler/codegen/graph/factor_space.h"
#include "compiler/codegen/passes.h"
#include "dialects/onnx/kinds.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
namespace cleave::codegen {
#define GEN_PASS_DEF_SPLITREDUCTIONS
#include "compiler/codegen/Passes.h.inc"

namespace {

constexpr int64_t minParts = 8;
constexpr int64_t sideBySide = 256; // elements

// When a reduction is cut: it has fewer results than `few`, and reduces at least `many` elements to each of them.
struct Limits {
  int64_t fewRows, fewColumns;
  int64_t manyInRow, manyInColumn;
  int64_t rowParts, columnParts; // at most
  int64_t narrow = 0;            // fewer columns have more parts: as many as this has with `columnParts`
  int64_t columnPartsOf(int64_t columns) const {
    return columnParts * std::max<int64_t>(1, narrow / std::max<int64_t>(columns, 64));
  }
};
// A GPU has a block for a row, or for 128 columns, and should have some hundreds of blocks (an H100 has 132
// multiprocessors): the fewer columns there are, the more parts they have.
constexpr Limits cpuLimits{16, 128, 16384, 16384, 64, 64}, gpuLimits{128, 16384, 16384, 1024, 256, 64, 512};

int64_t largestDivisor(int64_t number, int64_t limit) {
  for (int64_t divisor = limit; divisor > 1; --divisor)
    if (number % divisor == 0) return divisor;
  return 1;
}

// Into how many parts a run of reduced dimensions is cut. Samples of images stay whole, where there are enough of them.
int64_t partsOf(ArrayRef<int64_t> run, int64_t limit) {
  int64_t product = 1;
  for (int64_t size : run) product *= size;
  if (run.size() >= 3)
    if (const int64_t samples = largestDivisor(run[0], limit); samples >= limit / 4) return samples;
  return largestDivisor(product, limit);
}

// Can a kernel look at elements in both shapes?
bool linesUp(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  FactorSpace space;
  auto factorsOf = [&](ArrayRef<int64_t> shape) {
    FactorSpace::List factors;
    for (int64_t size : shape)
      if (size > 1) factors.push_back(space.make(size));
    return factors;
  };
  const FactorSpace::List first = factorsOf(a), second = factorsOf(b);
  return space.unify(first, second);
}

// The operand of a reduction in parts.
class Parting {
public:
  Parting(Operation *reduction, ArrayRef<int64_t> shape) : reduction(reduction), shape(shape) {}

  Value of(Value x) {
    const bool again = !linesUp(cast<RankedTensorType>(x.getType()).getShape(), shape) &&
                       canBeDoneAgain(x, reduction) && standing.size() <= 1;
    return again ? doneAgain(x, reduction) : reshaped(x);
  }

private:
  // One value repeated.
  static bool isUniform(Operation *op) {
    auto broadcast = dyn_cast_or_null<onnx::BroadcastOp>(op);
    return broadcast ? broadcast.getDims().empty() : op && onnx::isSplat(op->getResult(0));
  }
  static bool isReadOnlyBy(Operation *op, Operation *reader) {
    return llvm::all_of(op->getUsers(), [&](Operation *user) { return user == reader; });
  }

  // Is all that `x` is made of in memory in any case? An elementwise operation with other readers is noted: it will be.
  bool canBeDoneAgain(Value x, Operation *reader) {
    Operation *op = x.getDefiningOp();
    if (!op || isUniform(op) || !canJoinKernel(op)) return true;
    if (!onnx::isPointwise(op)) return false;
    if (!isReadOnlyBy(op, reader)) {
      standing.insert(op);
      return true;
    }
    return llvm::all_of(op->getOperands(), [&](Value operand) { return canBeDoneAgain(operand, op); });
  }

  Value doneAgain(Value x, Operation *reader) {
    Operation *op = x.getDefiningOp();
    if (auto constant = dyn_cast_or_null<onnx::ConstantOp>(op); constant && isUniform(op))
      return like(op, onnx::ConstantOp::create(builder, op->getLoc(),
                                               cast<SplatElementsAttr>(constant.getValue()).resizeSplat(parted(x))));
    if (auto broadcast = dyn_cast_or_null<onnx::BroadcastOp>(op); broadcast && isUniform(op))
      return like(op, onnx::BroadcastOp::create(builder, op->getLoc(), broadcast.getX(), shape, ArrayRef<int64_t>()));
    if (!op || !onnx::isPointwise(op) || !isReadOnlyBy(op, reader)) return reshaped(x);
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      const size_t before = llvm::find(op->getOperands(), operand) - op->operand_begin();
      operands.push_back(before < operands.size() ? operands[before] : doneAgain(operand, op));
    }
    Operation *again = builder.clone(*op);
    again->setOperands(operands);
    again->getResult(0).setType(parted(x));
    return again->getResult(0);
  }

  Value reshaped(Value x) {
    return like(reduction, onnx::ReshapeOp::create(builder, reduction->getLoc(), parted(x), x, shape));
  }
  static Value like(Operation *from, Operation *made) { // at the same place
    place::copy(from, made);
    return made->getResult(0);
  }
  RankedTensorType parted(Value x) const { return cast<RankedTensorType>(x.getType()).clone(shape); }

  Operation *reduction;
  ArrayRef<int64_t> shape;
  OpBuilder builder{reduction};
  llvm::SmallPtrSet<Operation *, 2> standing;
};

void split(Operation *op, const Limits &limits) {
  Value x = op->getOperand(0);
  auto type = cast<RankedTensorType>(x.getType()), resultType = cast<RankedTensorType>(op->getResult(0).getType());
  ArrayRef<int64_t> axes = op->getAttrOfType<DenseI64ArrayAttr>("axes").asArrayRef();
  auto isReduced = [&](int64_t d) { return llvm::is_contained(axes, d); };
  int64_t results = resultType.getNumElements(), each = type.getNumElements() / std::max<int64_t>(1, results);
  int64_t innermost = type.getRank() - 1;
  while (innermost > 0 && type.getDimSize(innermost) == 1) --innermost;
  bool isRows = innermost >= 0 && isReduced(innermost);
  if (each < (isRows ? limits.manyInRow : limits.manyInColumn)) return;
  if (results >= (isRows ? limits.fewRows : limits.fewColumns)) return;

  // The run of neighbouring reduced dimensions that gives the most parts is cut, the outermost of them; the others stay
  // as they are. A part has enough elements that lie side by side to be summed up in vectors.
  int64_t first = -1, last = -1, most = 1, parts = 1;
  for (int64_t begin = 0; begin < type.getRank(); ++begin) {
    int64_t product = 1, end = begin;
    for (; end < type.getRank() && isReduced(end); ++end) product *= type.getDimSize(end);
    const bool isInnermost = isRows && begin <= innermost && innermost < end;
    const int64_t limit = isRows ? limits.rowParts : limits.columnPartsOf(results);
    const int64_t found = isInnermost ? largestDivisor(product, std::min(limit, product / sideBySide))
                                      : partsOf(type.getShape().slice(begin, end - begin), limit);
    if (found > parts) {
      parts = found;
      most = product;
      first = begin;
      last = end;
    }
    begin = std::max(begin, end - 1);
  }
  if (parts < minParts) return;

  SmallVector<int64_t> shape, inner;
  int64_t partsAmongKept = 0;
  for (int64_t d = 0; d < type.getRank(); ++d) {
    if (d == first) {
      for (int64_t kept = 0; kept < d; ++kept) partsAmongKept += !isReduced(kept);
      shape.push_back(parts);
      inner.push_back(shape.size());
      shape.push_back(most / parts);
      d = last - 1;
      continue;
    }
    if (isReduced(d)) inner.push_back(shape.size());
    shape.push_back(type.getDimSize(d));
  }
  OpBuilder builder(op);
  Value parted = Parting(op, shape).of(x);
  SmallVector<int64_t> partial;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!llvm::is_contained(inner, static_cast<int64_t>(d))) partial.push_back(shape[d]);
  auto reduce = [&](Value from, ArrayRef<int64_t> over, RankedTensorType to) {
    OperationState state(op->getLoc(), op->getName());
    state.addOperands(from);
    state.addTypes(to);
    state.addAttributes(llvm::to_vector(op->getDiscardableAttrs()));
    state.addAttribute("axes", builder.getDenseI64ArrayAttr(over));
    return builder.create(state)->getResult(0);
  };
  Value partials = reduce(parted, inner, type.clone(partial));
  Value result = reduce(partials, {partsAmongKept}, resultType);
  op->getResult(0).replaceAllUsesWith(result);
}

struct SplitReductions : impl::SplitReductionsBase<SplitReductions> {
  using Base::Base;
  void runOnOperation() override {
    SmallVector<Operation *> found;
    getOperation().walk([&](Operation *op) {
      if (isReduction(op)) found.push_back(op);
    });
    for (Operation *op : found) split(op, gpu ? gpuLimits : cpuLimits);
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (Block &block : function.getBody())
        for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
          if (isOpTriviallyDead(&op)) op.erase();
  }
};

} // namespace

} // namespace cleave::codegen
