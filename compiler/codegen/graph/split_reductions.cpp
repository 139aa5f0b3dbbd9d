#include "compiler/codegen/clusters/cluster_graph.h"
#include "compiler/codegen/clusters/kernel_domain.h"
#include "compiler/codegen/graph/factor_space.h"
#include "compiler/codegen/passes.h"
#include "dialects/onnx/formula.h"
#include "dialects/onnx/kinds.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SetVector.h"

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
  bool wholeRows = false;        // parts of rows end where rows do, if a quarter of the parts can
  int64_t columnPartsOf(int64_t columns) const {
    return columnParts * std::max<int64_t>(1, narrow / std::max<int64_t>(columns, 64));
  }
};
// A GPU has a block for a row, or for 128 columns, and should have some hundreds of blocks (an H100 has 132
// multiprocessors): the fewer columns there are, the more parts they have.
constexpr Limits cpuLimits{16, 128, 16384, 16384, 64, 64}, gpuLimits{128, 16384, 16384, 1024, 256, 64, 512, true};

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

ArrayRef<int64_t> axesOf(Operation *reduction) {
  return reduction->getAttrOfType<DenseI64ArrayAttr>("axes").asArrayRef();
}

// How the operand of a reduction is cut into parts.
struct Cut {
  int64_t parts = 1, first = -1, last = -1; // its dimensions [first, last) become parts, and elements of each
  SmallVector<int64_t> shape;               // of it in parts
  SmallVector<int64_t> inner;               // the dimensions of `shape` that a part is summed up over
  SmallVector<int64_t> kept, partial;       // the others, and their sizes: the shape of the parts' results
  int64_t dimOfParts = 0;                   // among `partial`

  static std::optional<Cut> of(Operation *reduction, const Limits &limits);

  int64_t elements() const { // of a part
    int64_t count = 1;
    for (int64_t dim : inner) count *= shape[dim];
    return count;
  }
};

std::optional<Cut> Cut::of(Operation *op, const Limits &limits) {
  RankedTensorType type = onnx::tensorType(op->getOperand(0));
  ArrayRef<int64_t> axes = axesOf(op);
  auto isReduced = [&](int64_t d) { return llvm::is_contained(axes, d); };
  int64_t results = onnx::tensorType(op->getResult(0)).getNumElements(),
          each = type.getNumElements() / std::max<int64_t>(1, results);
  int64_t innermost = type.getRank() - 1;
  while (innermost > 0 && type.getDimSize(innermost) == 1) --innermost;
  bool isRows = innermost >= 0 && isReduced(innermost);
  if (each < (isRows ? limits.manyInRow : limits.manyInColumn)) return std::nullopt;
  if (results >= (isRows ? limits.fewRows : limits.fewColumns)) return std::nullopt;

  // The run of neighbouring reduced dimensions that gives the most parts is cut, the outermost of them; the others stay
  // as they are. A part has enough elements that lie side by side to be summed up in vectors.
  Cut cut;
  int64_t most = 1;
  for (int64_t begin = 0; begin < type.getRank(); ++begin) {
    int64_t product = 1, end = begin;
    for (; end < type.getRank() && isReduced(end); ++end) product *= type.getDimSize(end);
    const bool isInnermost = isRows && begin <= innermost && innermost < end;
    const int64_t limit = isRows ? limits.rowParts : limits.columnPartsOf(results);
    int64_t found = isInnermost ? largestDivisor(product, std::min(limit, product / sideBySide))
                                : partsOf(type.getShape().slice(begin, end - begin), limit);
    if (isInnermost && limits.wholeRows && type.getDimSize(innermost) >= sideBySide)
      if (const int64_t whole = largestDivisor(product / type.getDimSize(innermost), limit); whole >= limit / 4)
        found = whole;
    if (found > cut.parts) {
      cut.parts = found;
      most = product;
      cut.first = begin;
      cut.last = end;
    }
    begin = std::max(begin, end - 1);
  }
  if (cut.parts < minParts) return std::nullopt;

  for (int64_t d = 0; d < type.getRank(); ++d) {
    if (d == cut.first) {
      for (int64_t kept = 0; kept < d; ++kept) cut.dimOfParts += !isReduced(kept);
      cut.shape.push_back(cut.parts);
      cut.inner.push_back(cut.shape.size());
      cut.shape.push_back(most / cut.parts);
      d = cut.last - 1;
      continue;
    }
    if (isReduced(d)) cut.inner.push_back(cut.shape.size());
    cut.shape.push_back(type.getDimSize(d));
  }
  for (auto [d, size] : llvm::enumerate(cut.shape))
    if (!llvm::is_contained(cut.inner, static_cast<int64_t>(d))) {
      cut.kept.push_back(d);
      cut.partial.push_back(size);
    }
  return cut;
}

void split(Operation *op, const Limits &limits) {
  const std::optional<Cut> cut = Cut::of(op, limits);
  if (!cut) return;
  auto resultType = onnx::tensorType(op->getResult(0));
  OpBuilder builder(op);
  Value parted = Parting(op, cut->shape).of(op->getOperand(0));
  auto reduce = [&](Value from, ArrayRef<int64_t> over, RankedTensorType to) {
    OperationState state(op->getLoc(), op->getName());
    state.addOperands(from);
    state.addTypes(to);
    state.addAttributes(llvm::to_vector(op->getDiscardableAttrs()));
    state.addAttribute("axes", builder.getDenseI64ArrayAttr(over));
    return builder.create(state)->getResult(0);
  };
  Value partials = reduce(parted, cut->inner, resultType.clone(cut->partial));
  op->getResult(0).replaceAllUsesWith(reduce(partials, {cut->dimOfParts}, resultType));
}

// Sums of x - b and of its squares, where b is one number for each result, are made in the pass that sums up x: mean and
// variance of a batch norm's tensor. With the first element of each part of n elements as k,
//
//   s = sum(x - k),  q = sum((x - k)^2),  d = (k - b) + s / n     of each part; d: how far its mean is from b
//   sum(x) = sum of n k + s over the parts;  sum(x - b) = sum of n d;  sum((x - b)^2) = sum of q - s^2 / n + n d^2
//
// With an element of the part itself as k, q - s^2 / n loses at most the digits of n (Chan, Golub and LeVeque:
// Algorithms for computing the sample variance, 1983).
class Moments {
public:
  // `sum` is of x; nothing where no squares are summed up, or x is not in memory.
  static std::optional<Moments> of(onnx::ReduceSumOp sum, const Limits &limits) {
    Moments found(sum);
    for (Operation *user : sum.getX().getUsers()) {
      auto centred = dyn_cast<onnx::SubOp>(user);
      auto b = centred ? centred.getB().getDefiningOp<onnx::BroadcastOp>() : nullptr;
      auto isReduced = [&](int64_t dim) { return llvm::is_contained(sum.getAxes(), dim); };
      if (!b || b.getY() == sum.getX() || llvm::any_of(b.getDims(), isReduced)) continue;
      for (Operation *reader : centred->getUsers()) {
        found.add(reader, b, /*isSquared=*/false);
        if (auto square = dyn_cast<onnx::MulOp>(reader); square && square.getA() == square.getB())
          for (Operation *squareReader : square->getUsers()) found.add(squareReader, b, /*isSquared=*/true);
      }
    }
    if (llvm::none_of(found.centred, [](const Centred &one) { return one.isSquared; })) return std::nullopt;
    std::optional<Cut> cut = Cut::of(sum, limits);
    if (!cut || !found.findFirsts(*cut)) return std::nullopt;
    found.cut = std::move(*cut);
    return found;
  }

  // The sums that this replaces.
  SmallVector<Operation *> split() {
    SmallVector<Operation *> replaced;
    const double n = static_cast<double>(cut.elements());
    auto replace = [&](Operation *op, llvm::function_ref<Value(onnx::Formula &)> make) {
      Operation *before = op->getPrevNode();
      OpBuilder builder(op);
      onnx::Formula f(builder, op->getLoc());
      op->getResult(0).replaceAllUsesWith(make(f));
      for (Operation *made = before ? before->getNextNode() : &op->getBlock()->front(); made != op;
           made = made->getNextNode())
        place::copy(op, made);
      replaced.push_back(op);
    };
    Value first, sumOfPart, within; // of each part: k, s, q - s^2 / n
    replace(sum, [&](onnx::Formula &f) {
      first = f.make<onnx::SliceOp>(source, starts, sizes, steps);
      first = f.make<onnx::ReshapeOp>(onnx::tensorType(first).clone(cut.partial), first, cut.partial);
      first = f.cast(first, onnx::tensorType(sum.getX()).getElementType());
      Value shifted =
          f.sub(Parting(sum, cut.shape).of(sum.getX()), f.make<onnx::BroadcastOp>(first, cut.shape, cut.kept));
      sumOfPart = f.reduceSum(shifted, cut.inner);
      Value squares = f.reduceSum(f.mul(shifted, shifted), cut.inner);
      within = f.sub(squares, f.scale(f.mul(sumOfPart, sumOfPart), 1 / n));
      return f.reduceSum(f.add(f.scale(first, n), sumOfPart), {cut.dimOfParts});
    });
    for (Centred &one : centred)
      replace(one.sum, [&](onnx::Formula &f) {
        Value apart = f.sub(first, f.make<onnx::BroadcastOp>(one.b.getX(), cut.partial, dimsOf(one.b)));
        apart = f.add(apart, f.scale(sumOfPart, 1 / n));
        if (!one.isSquared) return f.scale(f.reduceSum(apart, {cut.dimOfParts}), n);
        return f.reduceSum(f.add(within, f.scale(f.mul(apart, apart), n)), {cut.dimOfParts});
      });
    return replaced;
  }

private:
  struct Centred {
    onnx::ReduceSumOp sum; // of x - b, or its squares
    onnx::BroadcastOp b;
    bool isSquared;
  };
  explicit Moments(onnx::ReduceSumOp sum) : sum(sum) {}

  void add(Operation *op, onnx::BroadcastOp b, bool isSquared) {
    auto other = dyn_cast<onnx::ReduceSumOp>(op);
    if (other && other.getAxes() == sum.getAxes() && sum->isBeforeInBlock(other))
      centred.push_back({other, b, isSquared});
  }

  // Where the first element of each part is in what x is made of in memory; false: not there, or not at equal steps.
  bool findFirsts(const Cut &cut) {
    source = sum.getX();
    if (Operation *widening = source.getDefiningOp(); widening && onnx::isWideningCast(widening))
      source = widening->getOperand(0);
    if (Operation *made = source.getDefiningOp(); made && isClusterOp(made)) return false;
    int64_t parts = cut.parts;
    for (auto [index, size] : llvm::enumerate(onnx::tensorType(source).getShape())) {
      const auto dim = static_cast<int64_t>(index);
      const bool isOfParts = cut.first <= dim && dim < cut.last;
      int64_t count = isOfParts || llvm::is_contained(sum.getAxes(), dim) ? 1 : size;
      if (isOfParts && parts > 1) {
        count = std::min(parts, size);
        if (size % count != 0 || parts % count != 0) return false;
        parts /= count;
      }
      starts.push_back(0);
      sizes.push_back(count);
      steps.push_back(isOfParts ? size / count : 1);
    }
    return parts == 1;
  }

  // The dimensions of b among the parts' results.
  SmallVector<int64_t> dimsOf(onnx::BroadcastOp b) const {
    SmallVector<int64_t> dims;
    for (int64_t dim : b.getDims()) {
      const int64_t among = dim - llvm::count_if(sum.getAxes(), [&](int64_t axis) { return axis < dim; });
      dims.push_back(among + (among >= cut.dimOfParts));
    }
    return dims;
  }

  mutable onnx::ReduceSumOp sum;
  SmallVector<Centred> centred;
  Value source;
  Cut cut;
  SmallVector<int64_t> starts, sizes, steps; // of the parts' first elements in `source`
};

struct SplitReductions : impl::SplitReductionsBase<SplitReductions> {
  using Base::Base;
  void runOnOperation() override {
    const Limits &limits = gpu ? gpuLimits : cpuLimits;
    SetVector<Operation *> found;
    getOperation().walk([&](Operation *op) {
      if (isReduction(op)) found.insert(op);
    });
    if (gpu) splitMoments(found, limits);
    for (Operation *op : found) split(op, limits);
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (Block &block : function.getBody())
        for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
          if (isOpTriviallyDead(&op)) op.erase();
  }
  // And leaves the others.
  static void splitMoments(SetVector<Operation *> &reductions, const Limits &limits) {
    for (Operation *op : SmallVector<Operation *>(reductions.getArrayRef())) {
      auto sum = reductions.contains(op) ? dyn_cast<onnx::ReduceSumOp>(op) : onnx::ReduceSumOp();
      std::optional<Moments> moments = sum ? Moments::of(sum, limits) : std::nullopt;
      if (!moments) continue;
      for (Operation *replaced : moments->split()) reductions.remove(replaced);
    }
  }
};

} // namespace

} // namespace cleave::codegen
