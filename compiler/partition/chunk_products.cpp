#include "compiler/partition/chunk_region.h"
#include "compiler/partition/layouts.h"
#include "compiler/partition/passes.h"
#include "dialects/onnx/result_shape.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace cleave::partition {
#define GEN_PASS_DEF_CHUNKPRODUCTS
#include "compiler/partition/Passes.h.inc"

namespace {

// Writes a region's members once for each part of its rows, and joins what leaves it.
class Chunking {
public:
  // `first`: the number of the first part among all of the function.
  Chunking(const ChunkRegion &region, int64_t parts, int64_t first)
      : region(region), parts(parts), first(first), builder(region.members.back()) {}

  void run() {
    SmallVector<Value> leaving;
    for (Operation *op : region.members)
      for (Value y : op->getResults())
        if (llvm::any_of(y.getUsers(), [&](Operation *user) { return !region.members.contains(user); }))
          leaving.push_back(y);
    for (int64_t part = 0; part < parts; ++part) {
      begin = region.rows * part / parts, end = region.rows * (part + 1) / parts;
      chunk = first + part;
      IRMapping made;
      for (Operation *op : region.members) writePart(op, made);
      for (Value y : leaving) {
        Value term = made.lookup(y);
        Value &sum = sums[y];
        if (!region.sums.contains(y))
          pieces[y].push_back(term);
        else
          sum = sum ? add(y, sum, term) : term;
      }
    }
    for (Value y : leaving) y.replaceUsesWithIf(joined(y), [&](OpOperand &use) { return !isMember(use.getOwner()); });
    moveReaders();
    for (Operation *op : llvm::reverse(region.members)) op->erase();
  }

private:
  // Where the operation stands that it is a part of, in this chunk.
  void setPlace(Operation *whole, Operation *part) const {
    place::copy(whole, part);
    place::Place place = place::of(part);
    place.chunk = chunk;
    place.set(part);
  }

  bool isMember(Operation *op) const { return region.members.contains(op); }

  void writePart(Operation *op, IRMapping &made) {
    for (Value x : op->getOperands()) {
      Operation *from = x.getDefiningOp();
      if (!region.dims.contains(x) || made.contains(x) || (from && isMember(from))) continue;
      SmallVector<int64_t> sizes = shapeOf(x), starts(sizes.size(), 0), steps(sizes.size(), 1);
      const int64_t dim = region.dims.lookup(x);
      starts[size_t(dim)] = region.sizeOf(x, 0, begin);
      sizes[size_t(dim)] = region.sizeOf(x, begin, end);
      auto slice = onnx::SliceOp::create(builder, op->getLoc(), cast<RankedTensorType>(x.getType()).clone(sizes), x,
                                         starts, sizes, steps);
      setPlace(op, slice);
      made.map(x, slice.getY());
    }
    Value y = op->getResult(0);
    auto type = cast<RankedTensorType>(y.getType());
    if (region.dims.contains(y)) {
      SmallVector<int64_t> shape(type.getShape());
      shape[size_t(region.dims.lookup(y))] = region.sizeOf(y, begin, end);
      type = type.clone(shape);
    }
    if (auto constant = dyn_cast<onnx::ConstantOp>(op)) {
      auto value = cast<DenseElementsAttr>(constant.getValue());
      auto splat = onnx::ConstantOp::create(builder, op->getLoc(), type, value.resizeSplat(type));
      setPlace(op, splat);
      made.map(y, splat.getY());
      return;
    }
    Operation *part = builder.clone(*op, made);
    setPlace(op, part);
    onnx::setResultShape(part, type.getShape());
    if (isa<onnx::ContractOp>(op) && region.sums.contains(y) && type.getElementTypeBitWidth() == 16)
      type = type.clone(builder.getF32Type()); // terms are added before they are rounded
    part->getResult(0).setType(type);
  }

  Value add(Value y, Value sum, Value term) {
    const Location loc = y.getLoc();
    Operation *op = nullptr;
    switch (region.sums.lookup(y)) {
    case dist::Reduction::Sum:
      op = onnx::AddOp::create(builder, loc, term.getType(), sum, term);
      break;
    case dist::Reduction::Max:
      op = onnx::MaxOp::create(builder, loc, term.getType(), sum, term);
      break;
    case dist::Reduction::Min:
      op = onnx::MinOp::create(builder, loc, term.getType(), sum, term);
      break;
    }
    setPlace(y.getDefiningOp(), op);
    return op->getResult(0);
  }

  Value joined(Value y) {
    Operation *op = nullptr;
    if (region.sums.contains(y)) {
      Value sum = sums[y];
      if (sum.getType() == y.getType()) return sum;
      op = onnx::CastOp::create(builder, y.getLoc(), y.getType(), sum,
                                cast<RankedTensorType>(y.getType()).getElementType());
    } else {
      op = onnx::ConcatOp::create(builder, y.getLoc(), y.getType(), pieces[y], region.dims.lookup(y));
    }
    place::copy(y.getDefiningOp(), op);
    return op->getResult(0);
  }

  // Operations between the members that read what leaves the region come after its parts.
  void moveReaders() {
    Operation *last = region.members.back(), *after = last->getNextNode();
    llvm::DenseSet<Operation *> late;
    for (Operation *op = region.members.front(), *next = nullptr; op != last; op = next) {
      next = op->getNextNode();
      auto isLate = [&](Value x) {
        Operation *made = x.getDefiningOp();
        return made && made->getBlock() == last->getBlock() && (late.contains(made) || op->isBeforeInBlock(made));
      };
      if (isMember(op) || llvm::none_of(op->getOperands(), isLate)) continue;
      late.insert(op);
      op->moveBefore(after);
    }
  }

  const ChunkRegion &region;
  const int64_t parts, first;
  OpBuilder builder;
  int64_t chunk = 0, begin = 0, end = 0; // the part that is written
  llvm::DenseMap<Value, Value> sums;
  llvm::DenseMap<Value, SmallVector<Value>> pieces;
};

struct ChunkProducts : impl::ChunkProductsBase<ChunkProducts> {
  using Base::Base;
  void runOnOperation() override {
    if (parts < 2) return;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      int64_t first = 0;
      for (const ChunkRegion &region : chunkRegions(function.getBody().front(), parts)) {
        const int64_t count = std::min<int64_t>(parts, region.rows / 2); // the proof knows sums by their ranges, of two at least
        if (count < 2) continue;
        Chunking(region, count, first).run();
        first += count;
      }
    }
  }
};

} // namespace
} // namespace cleave::partition
