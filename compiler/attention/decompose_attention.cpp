#include "compiler/attention/attention.h"
#include "dialects/onnx/formula.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <limits>

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;

namespace cleave::attention {
#define GEN_PASS_DEF_DECOMPOSEATTENTION
#include "compiler/attention/Passes.h.inc"

namespace {

// Index letters of the products.
enum : int64_t { B, H, S, T, D, E };

class Writer {
public:
  template <typename Op> Writer(OpBuilder &builder, Op op) : f(builder, op.getLoc()), full(builder.getF32Type()) {
    query = f.cast(op.getQuery(), full);
    key = f.cast(op.getKey(), full);
    value = f.cast(op.getValue(), full);
    heads = tensorType(query).getDimSize(2);
    repeats = heads / tensorType(key).getDimSize(2);
    scale = op.getScale().convertToDouble();
    scores = f.scale(product(query, {B, S, H, D}, forEachHead(key), {B, T, H, D}, {B, H, S, T}), scale);
    auto shape = tensorType(scores).getShape();
    if (Value bias = op.getBias()) {
      bias = f.cast(bias, full);
      SmallVector<int64_t> own, dims;
      for (auto [dim, size] : llvm::enumerate(tensorType(bias).getShape()))
        if (size == shape[dim]) own.push_back(size), dims.push_back(static_cast<int64_t>(dim));
      if (dims.size() < shape.size()) bias = f.make<onnx::BroadcastOp>(f.make<onnx::ReshapeOp>(bias, own), shape, dims);
      scores = f.add(scores, bias);
    }
    if (!op.getCausal()) return;
    auto type = RankedTensorType::get({shape[2], shape[3]}, builder.getI64Type());
    Value row = f.make<onnx::IotaOp>(TypeAttr::get(type), builder.getI64IntegerAttr(0), ArrayAttr());
    Value column = f.make<onnx::IotaOp>(TypeAttr::get(type), builder.getI64IntegerAttr(1), ArrayAttr());
    Value seen = f.make<onnx::LessOrEqualOp>(column, row);
    seen = f.make<onnx::BroadcastOp>(seen, shape, ArrayRef<int64_t>{2, 3});
    scores = f.where(seen, scores, f.like(scores, -std::numeric_limits<double>::infinity()));
  }

  void forward(onnx::ScaledAttentionOp op) {
    auto shape = tensorType(scores).getShape();
    Value max = f.make<onnx::ReduceMaxOp>(scores, ArrayRef<int64_t>{3});
    Value sum = f.reduceSum(f.make<onnx::ExpOp>(f.sub(scores, f.expand(max, shape, {3}))), {3});
    Value stats = f.add(max, f.make<onnx::LogOp>(sum));
    Value out = product(probabilities(stats), {B, H, S, T}, forEachHead(value), {B, T, H, E}, {B, S, H, E});
    op.getOut().replaceAllUsesWith(f.cast(out, tensorType(op.getOut()).getElementType()));
    op.getStats().replaceAllUsesWith(stats);
  }

  void backward(onnx::ScaledAttentionGradOp op) {
    auto shape = tensorType(scores).getShape();
    Value p = probabilities(op.getStats());
    Value given = f.cast(op.getOutGradient(), full), out = f.cast(op.getOut(), full);
    Value delta = f.make<onnx::TransposeOp>(f.reduceSum(f.mul(given, out), {3}), SmallVector<int64_t>{0, 2, 1});
    Value dp = product(given, {B, S, H, E}, forEachHead(value), {B, T, H, E}, {B, H, S, T});
    Value dx = f.scale(f.mul(p, f.sub(dp, f.expand(delta, shape, {3}))), scale);
    Value dq = product(dx, {B, H, S, T}, forEachHead(key), {B, T, H, D}, {B, S, H, D});
    Value dk = product(dx, {B, H, S, T}, query, {B, S, H, D}, {B, T, H, D});
    Value dv = product(p, {B, H, S, T}, given, {B, S, H, E}, {B, T, H, E});
    for (auto [old, made] : {std::pair{op.getQueryGradient(), dq}, std::pair{op.getKeyGradient(), ofOwnHeads(dk)},
                             std::pair{op.getValueGradient(), ofOwnHeads(dv)}})
      old.replaceAllUsesWith(f.cast(made, tensorType(old).getElementType()));
  }

private:
  Value product(Value a, ArrayRef<int64_t> lhs, Value b, ArrayRef<int64_t> rhs, ArrayRef<int64_t> result) {
    return f.make<onnx::ContractOp>(a, b, lhs, rhs, result);
  }
  Value probabilities(Value stats) {
    return f.make<onnx::ExpOp>(f.sub(scores, f.expand(stats, tensorType(scores).getShape(), {3})));
  }
  // Keys or values repeated for every head of the queries, and the sum of such gradients.
  Value forEachHead(Value x) {
    if (repeats == 1) return x;
    auto s = tensorType(x).getShape();
    Value wide = f.make<onnx::BroadcastOp>(x, SmallVector<int64_t>{s[0], s[1], s[2], repeats, s[3]},
                                           ArrayRef<int64_t>{0, 1, 2, 4});
    return f.make<onnx::ReshapeOp>(wide, SmallVector<int64_t>{s[0], s[1], heads, s[3]});
  }
  Value ofOwnHeads(Value x) {
    if (repeats == 1) return x;
    auto s = tensorType(x).getShape();
    return f.reduceSum(f.make<onnx::ReshapeOp>(x, SmallVector<int64_t>{s[0], s[1], heads / repeats, repeats, s[3]}),
                       {3});
  }

  Formula f;
  Type full;
  Value query, key, value, scores;
  int64_t heads = 1, repeats = 1;
  double scale = 1;
};

struct DecomposeAttention : impl::DecomposeAttentionBase<DecomposeAttention> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal()) continue;
      for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
        if (!isa<onnx::ScaledAttentionOp, onnx::ScaledAttentionGradOp>(op)) continue;
        place::Stamp marker(place::phaseOf(&op));
        OpBuilder builder(&op, &marker);
        if (auto forward = dyn_cast<onnx::ScaledAttentionOp>(op))
          Writer(builder, forward).forward(forward);
        else
          Writer(builder, cast<onnx::ScaledAttentionGradOp>(op)).backward(cast<onnx::ScaledAttentionGradOp>(op));
        op.erase();
      }
    }
  }
};

} // namespace
} // namespace cleave::attention
