// Factor rules of reductions, products, convolutions and pools.
#include "dialects/onnx/channels_last.h"
#include "dialects/onnx/facets/rule_building.h"

namespace cleave::onnx {
using namespace rules;
namespace {

// A reduction over `axes`, which the result lacks: where one of them is split, the result is partial.
FactorRule reduction(mlir::Value x, llvm::ArrayRef<int64_t> axes, dist::Reduction kind) {
  FactorRule rule;
  TensorFactors in = parallel(rule, shape(x)), out;
  for (size_t dim = 0; dim < in.size(); ++dim) {
    if (llvm::is_contained(axes, static_cast<int64_t>(dim))) {
      Factor &factor = rule.factors[in[dim][0]];
      factor.kind = Factor::Reduced;
      factor.reduction = kind;
    } else {
      out.push_back(in[dim]);
    }
  }
  rule.operands = {in};
  rule.results = {out};
  return rule;
}

TensorFactors placedLast(const TensorFactors &factors) {
  auto last = channelsLast(llvm::ArrayRef(factors));
  return {last.begin(), last.end()};
}

// The factors of a convolution and its two gradients: x[n,(g ci),..] w[(g oi),ci,..] y[n,(g oi),..]. A grouped
// convolution can be split by its groups; spatial dimensions stay whole.
struct ConvolutionFactors {
  FactorRule rule;
  TensorFactors x, w, y;

  ConvolutionFactors(llvm::ArrayRef<int64_t> xShape, llvm::ArrayRef<int64_t> wShape, llvm::ArrayRef<int64_t> yShape,
                     int64_t groups) {
    n = rule.add(xShape[0]);
    int64_t g = rule.add(groups);
    in = rule.add(wShape[1]);
    out = rule.add(wShape[0] / groups);
    x = {{n}, {g, in}};
    w = {{g, out}, {in}};
    y = {{n}, {g, out}};
    auto spatial = [&](TensorFactors &tensor, llvm::ArrayRef<int64_t> shape) {
      TensorFactors factors = whole(rule, shape.drop_front(2));
      tensor.insert(tensor.end(), factors.begin(), factors.end());
    };
    spatial(x, xShape);
    spatial(w, wShape);
    spatial(y, yShape);
  }
  // The factors of an operation's own tensors, as they lie.
  template <typename Op> static ConvolutionFactors of(Op op, mlir::Value x, mlir::Value w, mlir::Value y) {
    const bool isLast = op.getChannelsLast(), isWeightLast = op.getWeightChannelsLast();
    ConvolutionFactors f(channelsFirst(shape(x), isLast), channelsFirst(shape(w), isWeightLast),
                         channelsFirst(shape(y), isLast), op.getGroups());
    if (isLast) f.x = placedLast(f.x), f.y = placedLast(f.y);
    if (isWeightLast) f.w = placedLast(f.w);
    return f;
  }
  FactorRule finish(TensorFactors first, TensorFactors second, TensorFactors result, int64_t reduced) {
    rule.factors[reduced].kind = Factor::Reduced;
    rule.operands = {std::move(first), std::move(second)};
    rule.results = {std::move(result)};
    linearIn(rule, {0, 1});
    return rule;
  }
  int64_t n, in, out;
};

// Samples and channels are parallel. `full`, `pooled`: shapes before and after pooling.
struct PoolFactors {
  FactorRule rule;
  TensorFactors full, pooled;
  PoolFactors(llvm::ArrayRef<int64_t> fullAsItLies, llvm::ArrayRef<int64_t> pooledAsItLies, bool isLast) {
    auto fullShape = channelsFirst(fullAsItLies, isLast), pooledShape = channelsFirst(pooledAsItLies, isLast);
    full = parallel(rule, llvm::ArrayRef(fullShape).take_front(2));
    pooled = full;
    for (int64_t size : llvm::ArrayRef(fullShape).drop_front(2)) full.push_back({rule.add(size, Factor::Whole)});
    for (int64_t size : llvm::ArrayRef(pooledShape).drop_front(2)) pooled.push_back({rule.add(size, Factor::Whole)});
    if (isLast) full = placedLast(full), pooled = placedLast(pooled);
  }
  FactorRule finish(std::vector<TensorFactors> operands, TensorFactors result) {
    rule.operands = std::move(operands);
    rule.results = {std::move(result)};
    return rule;
  }
};

} // namespace

FactorRule ReduceSumOp::getFactorRule() {
  FactorRule rule = reduction(getX(), getAxes(), dist::Reduction::Sum);
  linearIn(rule, {0});
  return rule;
}
FactorRule ReduceMaxOp::getFactorRule() { return reduction(getX(), getAxes(), dist::Reduction::Max); }
FactorRule ReduceMinOp::getFactorRule() { return reduction(getX(), getAxes(), dist::Reduction::Min); }

// Every index letter is a factor; letters that the result lacks are reduced.
using Lettered = std::pair<mlir::Value, llvm::ArrayRef<int64_t>>;
static FactorRule letterRule(Lettered result, llvm::ArrayRef<Lettered> operands) {
  FactorRule rule;
  llvm::SmallDenseMap<int64_t, int64_t> factorOf;
  auto factorsOf = [&](Lettered tensor, Factor::Kind kind) {
    TensorFactors factors;
    for (auto [letter, size] : llvm::zip_equal(tensor.second, shape(tensor.first))) {
      auto [entry, fresh] = factorOf.try_emplace(letter, 0);
      if (fresh) entry->second = rule.add(size, kind);
      factors.push_back({entry->second});
    }
    return factors;
  };
  rule.results = {factorsOf(result, Factor::Parallel)};
  for (Lettered operand : operands) rule.operands.push_back(factorsOf(operand, Factor::Reduced));
  linearIn(rule, {0, 1});
  return rule;
}

FactorRule ContractOp::getFactorRule() {
  return letterRule({getY(), getResultIndices()}, {{getLhs(), getLhsIndices()}, {getRhs(), getRhsIndices()}});
}
FactorRule GroupedContractOp::getFactorRule() {
  return letterRule({getY(), getResultIndices()},
                    {{getLhs(), getLhsIndices()}, {getRhs(), getRhsIndices()}, {getGroups(), getRowIndices()}});
}

FactorRule ConvOp::getFactorRule() {
  auto f = ConvolutionFactors::of(*this, getX(), getW(), getY());
  return f.finish(f.x, f.w, f.y, f.in);
}
FactorRule ConvGradInputOp::getFactorRule() {
  auto f = ConvolutionFactors::of(*this, getDx(), getW(), getDy());
  return f.finish(f.y, f.w, f.x, f.out);
}
FactorRule ConvGradWeightOp::getFactorRule() {
  auto f = ConvolutionFactors::of(*this, getX(), getDw(), getDy());
  return f.finish(f.x, f.y, f.w, f.n);
}

// query [b..,s,(h g),d], key [b..,t,h,d], value [b..,t,h,e], out [b..,s,(h g),e]: samples and heads are parallel, and h
// alone of grouped heads. Positions and features stay whole.
template <typename Op> static FactorRule attentionRule(Op op, bool gradient) {
  FactorRule rule;
  auto query = shape(op.getQuery()), key = shape(op.getKey()), value = shape(op.getValue());
  TensorFactors batch;
  for (int64_t size : query.drop_back(3)) batch.push_back({rule.add(size)});
  const int64_t repeats = query[query.size() - 2] / key[key.size() - 2];
  int64_t h = rule.add(key[key.size() - 2]), g = rule.add(repeats, Factor::Whole);
  int64_t s = rule.add(query[query.size() - 3], Factor::Whole), t = rule.add(key[key.size() - 3], Factor::Whole);
  int64_t d = rule.add(query.back(), Factor::Whole), e = rule.add(value.back(), Factor::Whole);
  std::vector<int64_t> heads = repeats == 1 ? std::vector<int64_t>{h} : std::vector<int64_t>{h, g};
  auto behindBatch = [&](TensorFactors own) {
    own.insert(own.begin(), batch.begin(), batch.end());
    return own;
  };
  TensorFactors q = behindBatch({{s}, heads, {d}}), k = behindBatch({{t}, {h}, {d}}), v = behindBatch({{t}, {h}, {e}});
  TensorFactors out = behindBatch({{s}, heads, {e}}), stats = behindBatch({heads, {s}});
  rule.operands = {q, k, v};
  if (op.getBias()) {
    TensorFactors bias = behindBatch({heads, {s}, {t}});
    for (auto [dim, size] : llvm::enumerate(shape(op.getBias())))
      if (size == 1) bias[dim].clear();
    rule.operands.push_back(bias);
  }
  if (gradient) {
    rule.operands.insert(rule.operands.end(), {out, stats, out});
    rule.results = {q, k, v};
  } else {
    rule.results = {out, stats};
  }
  return rule;
}
FactorRule ScaledAttentionOp::getFactorRule() { return attentionRule(*this, false); }
FactorRule ScaledAttentionGradOp::getFactorRule() { return attentionRule(*this, true); }

FactorRule MaxPoolOp::getFactorRule() {
  PoolFactors f(shape(getX()), shape(getY()), getChannelsLast());
  return f.finish({f.full}, f.pooled);
}
FactorRule MaxPoolGradOp::getFactorRule() {
  PoolFactors f(shape(getX()), shape(getDy()), getChannelsLast());
  FactorRule rule = f.finish({f.full, f.pooled}, f.full);
  linearIn(rule, {1});
  return rule;
}
FactorRule AveragePoolOp::getFactorRule() {
  PoolFactors f(shape(getX()), shape(getY()), getChannelsLast());
  FactorRule rule = f.finish({f.full}, f.pooled);
  linearIn(rule, {0});
  return rule;
}
FactorRule AveragePoolGradOp::getFactorRule() {
  PoolFactors f(shape(getDx()), shape(getDy()), getChannelsLast());
  FactorRule rule = f.finish({f.pooled}, f.full);
  linearIn(rule, {0});
  return rule;
}

} // namespace cleave::onnx
