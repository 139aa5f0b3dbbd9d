#include "compiler/attention/block_attention.h"
#include <limits>

using namespace mlir;
using cleave::onnx::tensorType;

namespace cleave::attention {

Rows BlockAttention::attend(ArrayRef<Value> arguments, int64_t turn, int64_t parts) {
  int64_t axis = scoreDims.key + 1;
  Value x = blocks.run(score, arguments, xs, dims, {turn, parts}, nullptr);
  if (!x) return {};
  // Never minus infinity, so that x - max is a number for a row without any key. Of rows that are guarded half of the
  // lowest number, with which exporters mask, too: so their sums are 0 (GuardEmptyRows.cpp).
  const double least = -std::numeric_limits<float>::max() / (zeroEmptyRows ? 2 : 1);
  Value max = f.make<onnx::ReduceMaxOp>(x, ArrayRef<int64_t>{axis});
  max = f.make<onnx::MaxOp>(max, f.like(max, least));
  Value e = f.make<onnx::ExpOp>(f.sub(x, f.expand(max, tensorType(x).getShape(), {axis})));
  return {max, f.reduceSum(e, {axis}), weighted(e, arguments, turn, parts, nullptr)};
}

Rows BlockAttention::merge(Rows a, Rows b) {
  Value max = f.make<onnx::MaxOp>(a.max, b.max);
  Value fadeA = f.make<onnx::ExpOp>(f.sub(a.max, max)), fadeB = f.make<onnx::ExpOp>(f.sub(b.max, max));
  return {max, f.add(f.mul(a.sum, fadeA), f.mul(b.sum, fadeB)),
          f.add(f.mul(a.out, alongOut(fadeA, a.out)), f.mul(b.out, alongOut(fadeB, b.out)))};
}

FailureOr<SmallVector<Value>> BlockAttention::gradients(ArrayRef<Value> arguments, ArrayRef<int64_t> wanted,
                                                        const RowGradients &rows, int64_t turn, int64_t parts) {
  int64_t axis = scoreDims.key + 1;
  SmallVector<Operation *> scoring, weighing;
  Value x = blocks.run(score, arguments, xs, dims, {turn, parts}, &scoring);
  if (!x) return failure();
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  Value e = f.make<onnx::ExpOp>(f.sub(x, f.expand(rows.max, shape, {axis})));
  Value p = f.div(e, f.expand(rows.sum, shape, {axis}));
  Value part = weighted(p, arguments, turn, parts, &weighing);
  if (!part) return failure();
  SmallVector<Value> sources;
  for (int64_t number : wanted) sources.push_back(arguments[number]);
  SmallVector<Value> withP(sources);
  withP.push_back(p);
  auto fromWeigh = differentiate(builder, weighing, part, rows.out, withP);
  if (failed(fromWeigh)) return failure();
  // d softmax: p * (dp - sum over the row of p * dp), and that sum is the row's sum of out * d out.
  Value dp = fromWeigh->pop_back_val();
  Value dx = f.mul(p, f.sub(dp, f.expand(rows.delta, shape, {axis})));
  auto fromScore = differentiate(builder, scoring, x, dx, sources);
  if (failed(fromScore)) return failure();
  SmallVector<Value> gradients;
  for (auto [a, b] : llvm::zip_equal(*fromWeigh, *fromScore)) gradients.push_back(a && b ? f.add(a, b) : a ? a : b);
  return gradients;
}

Value BlockAttention::weighted(Value p, ArrayRef<Value> arguments, int64_t turn, int64_t parts,
                               SmallVectorImpl<Operation *> *made) {
  SmallVector<Value> blocked{p}, whole{Value()};
  SmallVector<SequenceDims> where{scoreDims};
  llvm::append_range(blocked, arguments);
  llvm::append_range(whole, xs);
  llvm::append_range(where, dims);
  return blocks.run(weigh, blocked, whole, where, {turn, parts}, made);
}

BlockAttention::Letters BlockAttention::letters() {
  auto product = cast<onnx::ContractOp>(weigh.front().back());
  ArrayRef<int64_t> p = fromProbabilities(product.getLhs()) ? product.getLhsIndices() : product.getRhsIndices();
  int64_t block = 0;
  for (ArrayRef<int64_t> used : {product.getLhsIndices(), product.getRhsIndices()})
    for (int64_t letter : used) block = std::max(block, letter + 1);
  Letters all{{block}, {block}};
  for (auto [dim, letter] : llvm::enumerate(p))
    if (static_cast<int64_t>(dim) != scoreDims.key) all.rows.push_back(letter);
  llvm::append_range(all.out, product.getResultIndices());
  return all;
}

bool BlockAttention::fromProbabilities(Value value) {
  if (value == weigh.getArgument(0)) return true;
  Operation *op = value.getDefiningOp();
  return op && llvm::any_of(op->getOperands(), [&](Value operand) { return fromProbabilities(operand); });
}

Value BlockAttention::alongOut(Value rows, Value out) {
  Letters all = letters();
  SmallVector<int64_t> places, order; // in out, increasing; which row dimension stands there
  for (auto [place, letter] : llvm::enumerate(all.out))
    for (auto [row, own] : llvm::enumerate(all.rows))
      if (own == letter) places.push_back(static_cast<int64_t>(place)), order.push_back(static_cast<int64_t>(row));
  if (!llvm::is_sorted(order)) rows = f.make<onnx::TransposeOp>(rows, order);
  return f.make<onnx::BroadcastOp>(rows, tensorType(out).getShape(), places);
}

Value BlockAttention::rowProducts(Value a, Value b) {
  Letters all = letters();
  SmallVector<int64_t> summed, kept, order;
  for (auto [place, letter] : llvm::enumerate(all.out))
    (llvm::is_contained(all.rows, letter) ? kept : summed).push_back(static_cast<int64_t>(place));
  Value sums = f.reduceSum(f.mul(a, b), summed); // the rows in out's order
  for (int64_t row : all.rows)
    for (auto [index, place] : llvm::enumerate(kept))
      if (all.out[place] == row) order.push_back(static_cast<int64_t>(index));
  return llvm::is_sorted(order) ? sums : f.make<onnx::TransposeOp>(sums, order);
}

Value BlockAttention::divisor(Value sum) {
  if (!zeroEmptyRows) return sum;
  return f.where(f.make<onnx::EqualOp>(sum, f.like(sum, 0)), f.like(sum, 1), sum);
}

} // namespace cleave::attention
