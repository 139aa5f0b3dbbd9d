#include "compiler/attention/library_ring.h"
#include "compiler/attention/blocks.h"
#include "compiler/attention/ring_halves.h"
#include <limits>

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;

namespace cleave::attention {
namespace {

// Of tensors with a leading dimension of blocks: that of positions in [n, b, positions, h, d], and in stats [n, b, h, s].
constexpr int64_t positions = 2, rows = 3;

class LibraryRing {
public:
  template <typename Op>
  LibraryRing(OpBuilder &builder, Location loc, Op op, int64_t count, bool headTail)
      : builder(builder), loc(loc), blocks(builder, loc, count), f(builder, loc), halves(builder, f, count),
        count(count), scale(op.getScaleAttr()), softCap(op.getSoftCapAttr()), causal(op.getRightBoundAttr()),
        headTail(headTail && causal && count > 1), q(split(op.getQuery())), k(split(op.getKey())),
        v(split(op.getValue())) {}

  void forward(onnx::ScaledAttentionOp op) {
    Rows all = attend(q, k, v, causal);
    SmallVector<Rows> parts; // head and tail of every block of queries
    if (headTail)
      for (int64_t which : {0, 1})
        parts.push_back({halves.half(all.stats, rows, which), halves.half(all.out, positions, which)});
    for (int64_t turn = 1; turn < count; ++turn) {
      k = blocks.turn(k), v = blocks.turn(v);
      if (!headTail) {
        Rows next = attend(q, k, v, {});
        all = merge(all, causal ? Rows{halves.whereEarlier(next.stats, turn, none), next.out} : next);
        continue;
      }
      parts[1] = merge(parts[1], attend(tail(q), head(k), head(v), {}));
      const Rows other = attend(byDevice(q, turn), byDevice(k, turn), byDevice(v, turn), {});
      for (int64_t which : {0, 1})
        parts[which] = merge(parts[which], {halves.whereTaken(which, other.stats, turn, none), other.out});
    }
    if (headTail)
      all = {halves.joined(parts[0].stats, parts[1].stats, rows), halves.joined(parts[0].out, parts[1].out, positions)};
    op.getOut().replaceAllUsesWith(join(all.out, op.getOut()));
    op.getStats().replaceAllUsesWith(blocks.join(all.stats, tensorType(op.getStats()), {rows - 1, -1}));
    op.erase();
  }

  void backward(onnx::ScaledAttentionGradOp op) {
    Of own{q, split(op.getOut()), blocks.split(op.getStats(), {rows - 1, -1}), split(op.getOutGradient())};
    Gradients first = gradients(own, k, v, causal);
    Value query = first.query, key, value; // those of keys and values that travel
    for (int64_t turn = 1; turn < count; ++turn) {
      k = blocks.turn(k), v = blocks.turn(v);
      if (key) key = blocks.turn(key), value = blocks.turn(value);
      Gradients next = headTail ? halfTurn(own, turn) : gradients(own, k, v, {});
      if (causal && !headTail)
        for (Value *one : {&next.query, &next.key, &next.value}) *one = halves.whereEarlier(*one, turn);
      query = f.add(query, next.query);
      key = key ? f.add(key, next.key) : next.key;
      value = value ? f.add(value, next.value) : next.value;
    }
    key = key ? f.add(blocks.turn(key), first.key) : first.key;
    value = value ? f.add(blocks.turn(value), first.value) : first.value;
    op.getQueryGradient().replaceAllUsesWith(join(query, op.getQueryGradient()));
    op.getKeyGradient().replaceAllUsesWith(join(key, op.getKeyGradient()));
    op.getValueGradient().replaceAllUsesWith(join(value, op.getValueGradient()));
    op.erase();
  }

private:
  struct Rows {
    Value stats, out; // [n, b, h, s], [n, b, s, h, e]
  };
  struct Of { // what the gradient of a block of queries reads
    Value query, out, stats, given;
  };
  struct Gradients {
    Value query, key, value;
  };
  // The statistics of rows that have seen no key: exp(none - stats) is 0.
  static constexpr double none = -std::numeric_limits<float>::max() / 2;

  Value split(Value x) { return blocks.split(x, {1, -1}); }
  Value join(Value x, Value like) { return blocks.join(x, tensorType(like), {1, -1}); }
  Value head(Value x) { return halves.half(x, positions, 0); }
  Value tail(Value x) { return halves.half(x, positions, 1); }
  Value byDevice(Value x, int64_t turn) { return halves.halfByDevice(x, positions, turn); }
  Rows attend(Value query, Value key, Value value, IntegerAttr right) {
    auto op =
        onnx::ScaledAttentionOp::create(builder, loc, query, key, value, Value(), scale, IntegerAttr(), right, softCap);
    return {op.getStats(), op.getOut()};
  }
  Gradients gradients(const Of &of, Value key, Value value, IntegerAttr right) {
    auto op = onnx::ScaledAttentionGradOp::create(builder, loc, of.query, key, value, Value(), scale, IntegerAttr(),
                                                  right, softCap, of.out, of.stats, of.given);
    return {op.getQueryGradient(), op.getKeyGradient(), op.getValueGradient()};
  }

  Rows merge(const Rows &a, const Rows &b) {
    Value max = f.make<onnx::MaxOp>(a.stats, b.stats);
    auto exp = [&](Value x, Value from) -> Value { return f.make<onnx::ExpOp>(f.sub(x, from)); };
    Value stats = f.add(max, f.make<onnx::LogOp>(f.add(exp(a.stats, max), exp(b.stats, max))));
    auto weighted = [&](const Rows &part) {
      Value weight = f.make<onnx::TransposeOp>(exp(part.stats, stats), SmallVector<int64_t>{0, 1, 3, 2});
      return f.mul(part.out, f.expand(weight, tensorType(part.out).getShape(), {4}));
    };
    return {stats, f.add(weighted(a), weighted(b))};
  }

  Gradients halfTurn(const Of &own, int64_t turn) {
    const Of tails{tail(own.query), tail(own.out), halves.half(own.stats, rows, 1), tail(own.given)};
    const Of taken{byDevice(own.query, turn), byDevice(own.out, turn), halves.halfByDevice(own.stats, rows, turn),
                   byDevice(own.given, turn)};
    const Gradients always = gradients(tails, head(k), head(v), {});
    const Gradients other = gradients(taken, byDevice(k, turn), byDevice(v, turn), {});
    auto whole = [&](Value always, Value other, int64_t half) { // `always` is of that half
      Value parts[] = {halves.whereTaken(0, other, turn), halves.whereTaken(1, other, turn)};
      parts[half] = f.add(parts[half], always);
      return halves.joined(parts[0], parts[1], positions);
    };
    return {whole(always.query, other.query, 1), whole(always.key, other.key, 0), whole(always.value, other.value, 0)};
  }

  OpBuilder &builder;
  Location loc;
  Blocks blocks;
  Formula f;
  RingHalves halves;
  int64_t count;
  FloatAttr scale, softCap;
  IntegerAttr causal; // the right bound 0, or none
  bool headTail;
  Value q, k, v;
};

} // namespace

void expandOnRing(OpBuilder &builder, Location loc, Operation *op, int64_t blocks, bool headTail) {
  if (auto forward = dyn_cast<onnx::ScaledAttentionOp>(op))
    return LibraryRing(builder, loc, forward, blocks, headTail).forward(forward);
  auto gradient = cast<onnx::ScaledAttentionGradOp>(op);
  LibraryRing(builder, loc, gradient, blocks, headTail).backward(gradient);
}

} // namespace cleave::attention
