#include "compiler/attention/attention.h"
#include "compiler/attention/block_attention.h"
#include "compiler/attention/library_ring.h"
#include "compiler/attention/ring_halves.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <limits>

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;

namespace cleave::attention {
#define GEN_PASS_DEF_EXPANDATTENTION
#include "compiler/attention/Passes.h.inc"

namespace {

bool travels(SequenceDims dims) { return dims.key >= 0 && dims.query < 0; }

class Ring {
public:
  template <typename Op>
  Ring(OpBuilder &builder, Location loc, Op op, bool headTail)
      : attention(builder, loc, op), f(attention.f), count(attention.count), halves(builder, f, count),
        headTail(headTail && op.getCausal() && count > 1) {
    for (auto [value, where] : llvm::zip_equal(attention.xs, attention.dims))
      current.push_back(attention.blocks.split(value, where));
  }

  LogicalResult forward(onnx::AttentionOp op) {
    Rows rows = attention.attend(argumentsAt(0), 0, count);
    if (!rows.out) return op.emitOpError("cannot be cut into blocks");
    SmallVector<Rows> parts; // head and tail of every block of queries
    if (headTail)
      for (int64_t half : {0, 1}) parts.push_back(halfOf(rows, half));
    for (int64_t turn = 1; turn < count; ++turn) {
      advance();
      if (!headTail) {
        rows = attention.merge(rows, attention.attend(argumentsAt(turn), turn, count));
        continue;
      }
      parts[1] = attention.merge(parts[1], attention.attend(alwaysVisible(), turn, 2 * count));
      Rows other = attention.attend(visibleByDevice(turn), turn, 2 * count);
      for (int64_t half : {0, 1}) parts[half] = attention.merge(parts[half], rowsToMerge(half, other, turn));
    }
    if (headTail)
      rows = {halves.joined(parts[0].max, parts[1].max, rowDim()), halves.joined(parts[0].sum, parts[1].sum, rowDim()),
              halves.joined(parts[0].out, parts[1].out, outDim())};
    Value out = f.div(rows.out, attention.alongOut(attention.divisor(rows.sum), rows.out));
    op.getOut().replaceAllUsesWith(attention.blocks.join(out, tensorType(op.getOut()), {attention.outQuery, -1}));
    op.getMax().replaceAllUsesWith(attention.blocks.join(rows.max, tensorType(op.getMax()), attention.rowDims()));
    op.getSum().replaceAllUsesWith(attention.blocks.join(rows.sum, tensorType(op.getSum()), attention.rowDims()));
    op.erase();
    return success();
  }

  LogicalResult backward(onnx::AttentionGradOp op) {
    ValueRange saved = ValueRange(op.getXs()).drop_front(attention.xs.size());
    SequenceDims outDims{attention.outQuery, -1};
    RowGradients rows{attention.blocks.split(saved[1], attention.rowDims()),
                      attention.divisor(attention.blocks.split(saved[2], attention.rowDims())), Value(),
                      attention.blocks.split(saved[3], outDims)};
    rows.delta = attention.rowProducts(rows.out, attention.blocks.split(saved[0], outDims));
    wanted.assign(op.getWanted().begin(), op.getWanted().end());
    totals.assign(wanted.size(), Value());
    if (failed(wholeTurn(rows, 0))) return op.emitOpError("cannot be cut into blocks");
    // The gradient that a device adds to its own keys does not travel round the ring.
    SmallVector<Value> localGrads(totals.size());
    for (auto [own, total, number] : llvm::zip_equal(localGrads, totals, wanted))
      if (travels(attention.dims[number])) own = std::exchange(total, Value());
    for (int64_t turn = 1; turn < count; ++turn) {
      advance();
      if (failed(headTail ? halfTurn(rows, turn) : wholeTurn(rows, turn)))
        return op.emitOpError("cannot be cut into blocks");
    }
    for (auto [own, total, number, result] : llvm::zip_equal(localGrads, totals, wanted, op.getGrads())) {
      SequenceDims where = attention.dims[number];
      if (total && travels(where)) total = attention.blocks.turn(total);
      if (own) add(total, own);
      if (!total) return op.emitOpError("has an operand that its result does not depend on");
      result.replaceAllUsesWith(attention.blocks.join(total, tensorType(result), where));
    }
    op.erase();
    return success();
  }

private:
  // Blocks of keys and values move on to the next device, and the sums of their gradients with them.
  void advance() {
    for (auto [value, where] : llvm::zip_equal(current, attention.dims))
      if (travels(where)) value = attention.blocks.turn(value);
    for (auto [total, number] : llvm::zip_equal(totals, wanted))
      if (total && travels(attention.dims[number])) total = attention.blocks.turn(total);
  }
  SmallVector<Value> argumentsAt(int64_t turn) {
    SmallVector<Value> arguments;
    for (auto [value, where] : llvm::zip_equal(current, attention.dims))
      arguments.push_back(where.both() ? attention.blocks.pick(value, turn) : value);
    return arguments;
  }

  LogicalResult wholeTurn(const RowGradients &rows, int64_t turn) {
    auto gradients = attention.gradients(argumentsAt(turn), wanted, rows, turn, count);
    if (failed(gradients)) return failure();
    for (auto [total, number, term] : llvm::zip_equal(totals, wanted, *gradients))
      if (term) add(total, attention.dims[number].both() ? attention.blocks.put(term, turn) : term);
    return success();
  }

  LogicalResult halfTurn(const RowGradients &rows, int64_t turn) {
    auto part = [&](auto pick) {
      return RowGradients{pick(rows.max, rowDim()), pick(rows.sum, rowDim()), pick(rows.delta, rowDim()),
                          pick(rows.out, outDim())};
    };
    auto always = attention.gradients(
        alwaysVisible(), wanted, part([&](Value v, int64_t dim) { return halves.half(v, dim, 1); }), turn, 2 * count);
    auto other = attention.gradients(visibleByDevice(turn), wanted,
                                     part([&](Value v, int64_t dim) { return halves.halfByDevice(v, dim, turn); }),
                                     turn, 2 * count);
    if (failed(always) || failed(other)) return failure();
    for (auto [total, number, a, b] : llvm::zip_equal(totals, wanted, *always, *other)) {
      if (!a || !b) continue;
      SequenceDims where = attention.dims[number];
      int64_t dim = 1 + (travels(where) ? where.key : where.query);
      if (dim == 0) { // neither queries nor keys
        add(total, f.add(a, b));
        continue;
      }
      Value head = halves.whereTaken(0, b, turn), tail = halves.whereTaken(1, b, turn);
      (travels(where) ? head : tail) = f.add(a, travels(where) ? head : tail);
      add(total, halves.joined(head, tail, dim));
    }
    return success();
  }

  void add(Value &total, Value term) { total = total ? f.add(total, term) : term; }

  int64_t rowDim() const { return attention.rowDims().query + 1; }
  int64_t outDim() const { return attention.outQuery + 1; }

  Rows halfOf(const Rows &rows, int64_t which) {
    return {halves.half(rows.max, rowDim(), which), halves.half(rows.sum, rowDim(), which),
            halves.half(rows.out, outDim(), which)};
  }

  // The rows to merge into the half `which`: those that leave it as it is where another half was taken.
  Rows rowsToMerge(int64_t which, const Rows &rows, int64_t turn) {
    return {halves.whereTaken(which, rows.max, turn, -std::numeric_limits<float>::max()),
            halves.whereTaken(which, rows.sum, turn), halves.whereTaken(which, rows.out, turn)};
  }
  // Tails of the queries, heads of the keys.
  SmallVector<Value> alwaysVisible() {
    SmallVector<Value> arguments;
    for (auto [value, where] : llvm::zip_equal(current, attention.dims))
      arguments.push_back(where.query >= 0 ? halves.half(value, where.query + 1, 1)
                          : where.key >= 0 ? halves.half(value, where.key + 1, 0)
                                           : value);
    return arguments;
  }
  // Heads of both where the keys come from an earlier device, else tails of both.
  SmallVector<Value> visibleByDevice(int64_t turn) {
    SmallVector<Value> arguments;
    for (auto [value, where] : llvm::zip_equal(current, attention.dims)) {
      int64_t dim = std::max(where.query, where.key);
      arguments.push_back(dim < 0 ? value : halves.halfByDevice(value, dim + 1, turn));
    }
    return arguments;
  }

  BlockAttention attention;
  Formula &f;
  int64_t count;
  RingHalves halves;
  bool headTail;
  SmallVector<Value> current, totals;
  SmallVector<int64_t> wanted;
};

struct ExpandAttention : impl::ExpandAttentionBase<ExpandAttention> {
  using Base::Base;
  void runOnOperation() override {
    bool headTail = onnx::headTailAttr.isOn(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
        if (failed(expand(&op, headTail))) return signalPassFailure();
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op)) op.erase();
    }
    onnx::headTailAttr.remove(getOperation());
  }

private:
  // Erases values that evaluation no longer reads (dropout's random numbers). A region's value is its last operation's.
  static void eraseDead(Region &region) {
    for (Operation &op : llvm::make_early_inc_range(llvm::drop_begin(llvm::reverse(region.front()))))
      if (isOpTriviallyDead(&op)) op.erase();
  }

  LogicalResult expand(Operation *op, bool headTail) const {
    auto attention = dyn_cast<onnx::AttentionOp>(op);
    auto gradient = dyn_cast<onnx::AttentionGradOp>(op);
    const bool isOfLibrary = isa<onnx::ScaledAttentionOp, onnx::ScaledAttentionGradOp>(op);
    if (!attention && !gradient && !isOfLibrary) return success();
    for (Region &region : op->getRegions()) eraseDead(region);
    place::Stamp marker(place::phaseOf(op));
    OpBuilder builder(op, &marker);
    // A name of its own: a decision may know the operations of the node by theirs.
    auto name = op->getLoc()->findInstanceOf<NameLoc>();
    std::string text = (name ? name.getName().getValue() : StringRef("attention")).str() + " (ring)";
    Location loc = NameLoc::get(builder.getStringAttr(text));
    if (isOfLibrary) return expandOnRing(builder, loc, op, blocks, headTail), success();
    return attention ? Ring(builder, loc, attention, headTail).forward(attention)
                     : Ring(builder, loc, gradient, headTail).backward(gradient);
  }
};

} // namespace
} // namespace cleave::attention
