#include "compiler/attention/attention.h"
#include "compiler/attention/band_table.h"
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
enum : int64_t { H, S, T, D, E, Batch }; // and behind these the dimensions of samples

class Writer {
public:
  template <typename Op> Writer(OpBuilder &builder, Op op) : f(builder, op.getLoc()), full(builder.getF32Type()) {
    query = f.cast(op.getQuery(), full);
    key = f.cast(op.getKey(), full);
    value = f.cast(op.getValue(), full);
    last = tensorType(query).getRank() - 1;
    heads = tensorType(query).getDimSize(last - 1);
    repeats = heads / tensorType(key).getDimSize(last - 1);
    scale = op.getScale().convertToDouble();
    scores = f.scale(product(query, {S, H, D}, forEachHead(key), {T, H, D}, {H, S, T}), scale);
    if (auto softCap = op.getSoftCap()) {
      const double cap = softCap->convertToDouble();
      Value part = f.make<onnx::TanhOp>(f.div(scores, f.like(scores, cap)));
      slope = f.sub(f.like(part, 1), f.mul(part, part));
      scores = f.scale(part, cap);
    }
    auto shape = tensorType(scores).getShape();
    if (Value bias = op.getBias()) {
      bias = f.cast(bias, full);
      SmallVector<int64_t> own, dims;
      for (auto [dim, size] : llvm::enumerate(tensorType(bias).getShape()))
        if (size == shape[dim]) own.push_back(size), dims.push_back(static_cast<int64_t>(dim));
      if (dims.size() < shape.size()) bias = f.make<onnx::BroadcastOp>(f.make<onnx::ReshapeOp>(bias, own), shape, dims);
      scores = f.add(scores, bias);
    }
    const runtime::AttentionBand band = op.getBand();
    if (!band.isBounded()) return;
    auto type = RankedTensorType::get(shape.take_back(2), builder.getI64Type());
    Value row = f.make<onnx::IotaOp>(TypeAttr::get(type), builder.getI64IntegerAttr(0), ArrayAttr());
    Value column = f.make<onnx::IotaOp>(TypeAttr::get(type), builder.getI64IntegerAttr(1), ArrayAttr());
    scores = hideOutside(f, band, row, column, scores, f.like(scores, -std::numeric_limits<double>::infinity()));
  }

  void forward(onnx::ScaledAttentionOp op) {
    auto shape = tensorType(scores).getShape();
    Value max = f.make<onnx::ReduceMaxOp>(scores, ArrayRef<int64_t>{last});
    Value sum = f.reduceSum(f.make<onnx::ExpOp>(f.sub(scores, f.expand(max, shape, {last}))), {last});
    Value stats = f.add(max, f.make<onnx::LogOp>(sum));
    Value out = product(probabilities(stats), {H, S, T}, forEachHead(value), {T, H, E}, {S, H, E});
    op.getOut().replaceAllUsesWith(f.cast(out, tensorType(op.getOut()).getElementType()));
    op.getStats().replaceAllUsesWith(stats);
  }

  void backward(onnx::ScaledAttentionGradOp op) {
    auto shape = tensorType(scores).getShape();
    Value p = probabilities(op.getStats());
    Value given = f.cast(op.getOutGradient(), full), out = f.cast(op.getOut(), full);
    SmallVector<int64_t> perm = llvm::to_vector(llvm::seq<int64_t>(0, last));
    std::swap(perm[last - 1], perm[last - 2]);
    Value delta = f.make<onnx::TransposeOp>(f.reduceSum(f.mul(given, out), {last}), perm);
    Value dp = product(given, {S, H, E}, forEachHead(value), {T, H, E}, {H, S, T});
    Value dx = f.mul(p, f.sub(dp, f.expand(delta, shape, {last})));
    dx = f.scale(slope ? f.mul(dx, slope) : dx, scale);
    Value dq = product(dx, {H, S, T}, forEachHead(key), {T, H, D}, {S, H, D});
    Value dk = product(dx, {H, S, T}, query, {S, H, D}, {T, H, D});
    Value dv = product(p, {H, S, T}, given, {S, H, E}, {T, H, E});
    for (auto [old, made] : {std::pair{op.getQueryGradient(), dq}, std::pair{op.getKeyGradient(), ofOwnHeads(dk)},
                             std::pair{op.getValueGradient(), ofOwnHeads(dv)}})
      old.replaceAllUsesWith(f.cast(made, tensorType(old).getElementType()));
  }

private:
  Value product(Value a, ArrayRef<int64_t> lhs, Value b, ArrayRef<int64_t> rhs, ArrayRef<int64_t> result) {
    auto ofSamples = [&](ArrayRef<int64_t> own) {
      SmallVector<int64_t> all = llvm::to_vector(llvm::seq<int64_t>(Batch, Batch + last - 2));
      llvm::append_range(all, own);
      return all;
    };
    return f.make<onnx::ContractOp>(a, b, ofSamples(lhs), ofSamples(rhs), ofSamples(result));
  }
  Value probabilities(Value stats) {
    return f.make<onnx::ExpOp>(f.sub(scores, f.expand(stats, tensorType(scores).getShape(), {last})));
  }
  // Keys or values repeated for every head of the queries, and the sum of such gradients.
  Value forEachHead(Value x) {
    if (repeats == 1) return x;
    SmallVector<int64_t> shape(tensorType(x).getShape()), repeated(shape);
    repeated.insert(repeated.begin() + last, repeats);
    shape[last - 1] = heads;
    return f.make<onnx::ReshapeOp>(f.expand(x, repeated, {last}), shape);
  }
  Value ofOwnHeads(Value x) {
    if (repeats == 1) return x;
    SmallVector<int64_t> shape(tensorType(x).getShape());
    shape[last - 1] = heads / repeats;
    shape.insert(shape.begin() + last, repeats);
    return f.reduceSum(f.make<onnx::ReshapeOp>(x, shape), {last});
  }

  Formula f;
  Type full;
  Value query, key, value, scores;
  Value slope; // of a soft cap: the derivative of the scores by what is capped
  int64_t heads = 1, repeats = 1;
  int64_t last = 3; // dimension of the operands
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
