// ExpandAttention: Attention and AttentionGrad as core ops on the blocks of a sequence (attention.h has the formulas).
//
//   %out, %max, %sum = onnx.Attention %q, %k, %v {blocks = 2}
//   ->  turn 0: block p of the queries meets block p of the keys;  %k1 = onnx.Roll %k0 {dim = 0, distance = 1}
//       turn 1: block p of the queries meets block p - 1 of the keys
#include "compiler/attention/attention.h"
#include "compiler/attention/blocks.h"
#include "compiler/partition/layouts.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <limits>

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;

namespace cleave::attention {
namespace {

// Everything that is made for an operation belongs to its phase.
struct PhaseMarker : OpBuilder::Listener {
  StringAttr phase;
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    op->setAttr(partition::phaseAttr, phase);
    op->removeAttr(partition::nodeAttr);
  }
};

class Expansion {
public:
  template <typename Op>
  Expansion(OpBuilder &builder, Location loc, Op op)
      : builder(builder), f(builder, loc), blocks(builder, loc, op.getBlocks()), count(op.getBlocks()),
        score(op.getScore()), weigh(op.getWeigh()), scoreDims{int64_t(op.getScoreQuery()), int64_t(op.getScoreKey())},
        outQuery(op.getOutQuery()), zeroEmptyRows(op.getZeroEmptyRows()) {
    size_t number = op.getQueryDims().size();
    for (auto [value, query, key] :
         llvm::zip_equal(ValueRange(op.getXs()).take_front(number), op.getQueryDims(), op.getKeyDims())) {
      xs.push_back(value);
      dims.push_back({query, key});
      now.push_back(blocks.split(value, dims.back()));
    }
  }

  // out, max, sum
  LogicalResult forward(onnx::AttentionOp op) {
    Value max, sum, out;
    int64_t axis = scoreDims.key + 1;
    for (int64_t turn = 0; turn < count; ++turn) {
      advance(turn);
      SmallVector<Value> arguments = argumentsAt(turn);
      Value x = blocks.run(score, arguments, xs, dims, turn, nullptr);
      if (!x) return op.emitOpError("cannot be cut into blocks");
      // Never minus infinity, so that x - max is not NaN for a row without any key.
      Value own = f.make<onnx::ReduceMaxOp>(x, ArrayRef<int64_t>{axis});
      own = f.make<onnx::MaxOp>(own, max ? max : f.like(own, -std::numeric_limits<float>::max()));
      Value e = f.make<onnx::ExpOp>(f.sub(x, f.expand(own, tensorType(x).getShape(), {axis})));
      Value ownSum = f.reduceSum(e, {axis}), part = weighted(e, arguments, turn, nullptr);
      if (!part) return op.emitOpError("cannot be cut into blocks");
      if (max) {
        Value fade = f.make<onnx::ExpOp>(f.sub(max, own));
        ownSum = f.add(f.mul(sum, fade), ownSum);
        part = f.add(f.mul(out, alongOut(fade, part)), part);
      }
      max = own, sum = ownSum, out = part;
    }
    Value divisor = sum;
    if (zeroEmptyRows) divisor = orOne(sum);
    out = f.div(out, alongOut(divisor, out));
    op.getOut().replaceAllUsesWith(blocks.join(out, tensorType(op.getOut()), {outQuery, -1}));
    op.getMax().replaceAllUsesWith(blocks.join(max, tensorType(op.getMax()), rowDims()));
    op.getSum().replaceAllUsesWith(blocks.join(sum, tensorType(op.getSum()), rowDims()));
    op.erase();
    return success();
  }

  LogicalResult backward(onnx::AttentionGradOp op) {
    ValueRange kept = ValueRange(op.getXs()).drop_front(xs.size());
    Value out = blocks.split(kept[0], {outQuery, -1}), max = blocks.split(kept[1], rowDims()),
          sum = blocks.split(kept[2], rowDims()), gradient = blocks.split(kept[3], {outQuery, -1});
    if (zeroEmptyRows) sum = orOne(sum);
    Value delta = rowProducts(gradient, out);
    int64_t axis = scoreDims.key + 1;
    SmallVector<Value> totals(op.getWanted().size());
    for (int64_t turn = 0; turn < count; ++turn) {
      advance(turn);
      SmallVector<Value> arguments = argumentsAt(turn), wanted;
      for (int64_t number : op.getWanted()) wanted.push_back(arguments[number]);
      SmallVector<Operation *> scoring, weighing;
      Value x = blocks.run(score, arguments, xs, dims, turn, &scoring);
      if (!x) return op.emitOpError("cannot be cut into blocks");
      ArrayRef<int64_t> shape = tensorType(x).getShape();
      Value p = f.div(f.make<onnx::ExpOp>(f.sub(x, f.expand(max, shape, {axis}))), f.expand(sum, shape, {axis}));
      Value part = weighted(p, arguments, turn, &weighing);
      if (!part) return op.emitOpError("cannot be cut into blocks");
      SmallVector<Value> weighWanted(wanted);
      weighWanted.push_back(p);
      auto fromWeigh = differentiate(builder, weighing, part, gradient, weighWanted);
      if (failed(fromWeigh)) return failure();
      Value dp = fromWeigh->pop_back_val();
      Value dx = f.mul(p, f.sub(dp, f.expand(delta, shape, {axis})));
      auto fromScore = differentiate(builder, scoring, x, dx, wanted);
      if (failed(fromScore)) return failure();
      for (size_t i = 0; i < totals.size(); ++i) {
        SmallVector<Value> terms;
        for (Value term : {(*fromWeigh)[i], (*fromScore)[i]})
          if (term) terms.push_back(term);
        collect(totals[i], dims[op.getWanted()[i]], terms, turn);
      }
    }
    for (auto [total, number, result] : llvm::zip_equal(totals, op.getWanted(), op.getGrads())) {
      SequenceDims where = dims[number];
      bool travels = where.key >= 0 && where.query < 0;
      if (!total) return op.emitOpError("has an operand that its result does not depend on");
      result.replaceAllUsesWith(blocks.join(travels ? blocks.turn(total) : total, tensorType(result), where));
    }
    op.erase();
    return success();
  }

private:
  SequenceDims rowDims() const { return {scoreDims.query - (scoreDims.key < scoreDims.query), -1}; }

  // Blocks of keys and values move on to the next device.
  void advance(int64_t turn) {
    if (turn == 0) return;
    for (auto [value, where] : llvm::zip_equal(now, dims))
      if (where.key >= 0 && where.query < 0) value = blocks.turn(value);
  }
  SmallVector<Value> argumentsAt(int64_t turn) {
    SmallVector<Value> arguments;
    for (auto [value, where] : llvm::zip_equal(now, dims))
      arguments.push_back(where.both() ? blocks.pick(value, turn) : value);
    return arguments;
  }

  Value weighted(Value p, ArrayRef<Value> arguments, int64_t turn, SmallVectorImpl<Operation *> *made) {
    SmallVector<Value> blocked{p}, whole{Value()};
    SmallVector<SequenceDims> where{scoreDims};
    llvm::append_range(blocked, arguments);
    llvm::append_range(whole, xs);
    llvm::append_range(where, dims);
    return blocks.run(weigh, blocked, whole, where, turn, made);
  }

  // The gradient of an operand so far; that of keys and values moves on with them.
  void collect(Value &total, SequenceDims where, ArrayRef<Value> terms, int64_t turn) {
    if (total && where.key >= 0 && where.query < 0) total = blocks.turn(total);
    SmallVector<Value> all;
    if (total) all.push_back(total);
    for (Value term : terms) all.push_back(where.both() ? blocks.put(term, turn) : term);
    if (!all.empty()) total = f.sum(all);
  }

  // The weighing product's letters of the probabilities, and of the result, with the block's in front.
  struct Letters {
    SmallVector<int64_t> rows, out;
  };
  Letters letters() {
    auto product = cast<onnx::ContractOp>(weigh.front().back());
    Value left = product.getLhs();
    bool isLeft = fromProbabilities(left);
    ArrayRef<int64_t> p = isLeft ? product.getLhsIndices() : product.getRhsIndices();
    int64_t block = 0;
    for (ArrayRef<int64_t> used : {product.getLhsIndices(), product.getRhsIndices()})
      for (int64_t letter : used) block = std::max(block, letter + 1);
    Letters all{{block}, {block}};
    for (auto [dim, letter] : llvm::enumerate(p))
      if (static_cast<int64_t>(dim) != scoreDims.key) all.rows.push_back(letter);
    all.out.append(product.getResultIndices().begin(), product.getResultIndices().end());
    return all;
  }
  bool fromProbabilities(Value value) {
    if (value == weigh.getArgument(0)) return true;
    Operation *op = value.getDefiningOp();
    return op && llvm::any_of(op->getOperands(), [&](Value operand) { return fromProbabilities(operand); });
  }

  // One number a row, wherever the rows are in out.
  Value alongOut(Value rows, Value out) {
    Letters all = letters();
    SmallVector<int64_t> dims, order; // of out, in increasing order, and the row dimension that goes there
    for (auto [dim, letter] : llvm::enumerate(all.out))
      for (auto [row, own] : llvm::enumerate(all.rows))
        if (own == letter) dims.push_back(static_cast<int64_t>(dim)), order.push_back(static_cast<int64_t>(row));
    if (!llvm::is_sorted(order)) rows = f.make<onnx::TransposeOp>(rows, order);
    return f.make<onnx::BroadcastOp>(rows, tensorType(out).getShape(), dims);
  }
  // sum of a * b over what is not a row.
  Value rowProducts(Value a, Value b) {
    Letters all = letters();
    SmallVector<int64_t> summed, kept, perm;
    for (auto [dim, letter] : llvm::enumerate(all.out))
      (llvm::is_contained(all.rows, letter) ? kept : summed).push_back(static_cast<int64_t>(dim));
    Value sums = f.reduceSum(f.mul(a, b), summed); // dimensions: rows in out's order
    for (int64_t row : all.rows)
      for (auto [place, dim] : llvm::enumerate(kept))
        if (all.out[dim] == row) perm.push_back(static_cast<int64_t>(place));
    return llvm::is_sorted(perm) ? sums : f.make<onnx::TransposeOp>(sums, perm);
  }

  Value orOne(Value sum) { return f.where(f.make<onnx::EqualOp>(sum, f.like(sum, 0)), f.like(sum, 1), sum); }

  OpBuilder &builder;
  Formula f;
  Blocks blocks;
  int64_t count;
  Region &score, &weigh;
  SequenceDims scoreDims;
  int64_t outQuery;
  bool zeroEmptyRows;
  SmallVector<Value> xs, now;
  SmallVector<SequenceDims> dims;
};

struct ExpandAttention : PassWrapper<ExpandAttention, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ExpandAttention)
  StringRef getArgument() const override { return "expand-attention"; }
  StringRef getDescription() const override { return "attention becomes core ops on blocks of the sequence"; }

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
        if (failed(expand(&op))) return signalPassFailure();
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op)) op.erase();
    }
  }

private:
  LogicalResult expand(Operation *op) {
    auto attention = dyn_cast<onnx::AttentionOp>(op);
    auto gradient = dyn_cast<onnx::AttentionGradOp>(op);
    if (!attention && !gradient) return success();
    PhaseMarker marker;
    marker.phase = StringAttr::get(&getContext(), partition::phaseOf(op));
    OpBuilder builder(op, &marker);
    auto name = op->getLoc()->findInstanceOf<NameLoc>();
    // A name of its own: a decision may know the operations of the node by theirs.
    Location loc =
        NameLoc::get(builder.getStringAttr((name ? name.getName().getValue() : "attention").str() + " (ring)"));
    return attention ? Expansion(builder, loc, attention).forward(attention)
                     : Expansion(builder, loc, gradient).backward(gradient);
  }
};

} // namespace

std::unique_ptr<Pass> createExpandAttention() { return std::make_unique<ExpandAttention>(); }

void registerAttentionPasses() {
  registerPass([] { return createRecognizeAttention(2); });
  registerPass([] { return createExpandAttention(); });
}

} // namespace cleave::attention
