#include "compiler/training/losses.h"
#include <limits>

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;
using cleave::recipe::LossKind;

namespace cleave::training {
namespace {

RankedTensorType scalarLike(Value x) { return RankedTensorType::get({}, tensorType(x).getElementType()); }

// -(t log p + (1-t) log(1-p)) with both logarithms at least -100. Its derivative is PyTorch's, (p-t) / max(p(1-p),
// 1e-12), which stays finite at p = 0 and 1: the value is stopped and a term c (p - stop(p)), which is 0, carries the
// slope c.
Value binaryCrossEntropy(Formula f, Value p, Value t) {
  auto stop = [&](Value value) { return f.make<onnx::StopGradientOp>(value); };
  Value one = f.like(p, 1), floor = f.like(p, -100);
  Value logP = f.make<onnx::MaxOp>(f.make<onnx::LogOp>(p), floor);
  Value logQ = f.make<onnx::MaxOp>(f.make<onnx::Log1pOp>(f.neg(p)), floor);
  Value value = f.neg(f.add(f.mul(t, logP), f.mul(f.sub(one, t), logQ)));
  Value slope = f.div(f.sub(p, t), f.make<onnx::MaxOp>(f.mul(p, f.sub(one, p)), f.like(p, 1e-12)));
  return f.add(stop(value), f.mul(stop(slope), f.sub(p, stop(p))));
}

// x minus its maximum along `axis`, and without that dimension the logarithm of the sum of z's exponentials, and the
// maximum.
struct ShiftedLogits {
  Value z, logSum, largest;
};
ShiftedLogits shiftedLogits(Formula f, Value x, int64_t axis) {
  Value largest = f.make<onnx::StopGradientOp>(f.make<onnx::ReduceMaxOp>(x, axis));
  Value z = f.sub(x, f.expand(largest, tensorType(x).getShape(), axis));
  return {z, f.make<onnx::LogOp>(f.reduceSum(f.make<onnx::ExpOp>(z), axis)), largest};
}

// z_loss (log sum e^x)^2 of each label, beside its loss.
Value withZLoss(Formula f, const recipe::Loss &loss, const ShiftedLogits &logits, Value perLabel) {
  if (loss.zLoss == 0) return perLabel;
  Value logSum = f.add(logits.logSum, logits.largest);
  return f.add(perLabel, f.scale(f.mul(logSum, logSum), loss.zLoss));
}

} // namespace

bool isClassLoss(LossKind kind) {
  return kind == LossKind::SoftmaxCrossEntropy || kind == LossKind::Nll || kind == LossKind::MultiMargin;
}

LossTerms buildClassLoss(Formula f, const recipe::Loss &loss, Value x, Value labels, int64_t axis) {
  auto type = tensorType(x);
  auto labelsType = tensorType(labels);
  double classes = static_cast<double>(type.getDimSize(axis)), smoothing = loss.labelSmoothing;
  Value index = f.make<onnx::IotaOp>(type.clone(labelsType.getElementType()), axis, ArrayAttr());
  Value isLabel = f.make<onnx::EqualOp>(f.expand(labels, type.getShape(), axis), index);
  Value weights, own; // of the classes, and of each label's
  if (!loss.weight.empty()) {
    weights = f.along(type, axis, loss.weight);
    own = f.reduceSum(f.only(isLabel, weights), axis);
  }
  auto weighted = [&](Value x) { return own ? f.mul(x, own) : x; };
  auto ofClasses = [&](Value x) { return f.reduceSum(weights ? f.mul(x, weights) : x, axis); };
  Value perLabel;
  if (loss.kind == LossKind::MultiMargin) { // of the other classes, max(0, margin - x_label + x)^p, over all classes
    Value ofLabel = f.expand(f.reduceSum(f.only(isLabel, x), axis), type.getShape(), axis);
    Value term = f.make<onnx::ReluOp>(f.add(f.sub(x, ofLabel), f.like(x, loss.margin)));
    if (loss.p == 2) term = f.mul(term, term);
    perLabel = weighted(f.scale(f.reduceSum(f.where(isLabel, f.like(x, 0), term), axis), 1 / classes));
    own = {}; // a mean is over the batch
  } else if (loss.kind == LossKind::Nll) {
    perLabel = weighted(f.neg(f.reduceSum(f.only(isLabel, x), axis)));
  } else {
    const ShiftedLogits logits = shiftedLogits(f, x, axis);
    perLabel = weighted(f.sub(logits.logSum, f.reduceSum(f.only(isLabel, logits.z), axis)));
    if (smoothing != 0) { // (1-s) nll + s * mean over classes of -log p
      Value all = ofClasses(f.sub(f.expand(logits.logSum, type.getShape(), axis), logits.z));
      perLabel = f.add(f.scale(perLabel, 1 - smoothing), f.scale(all, smoothing / classes));
    }
    perLabel = withZLoss(f, loss, logits, perLabel);
  }
  // A label that is no class must not train silently: the loss becomes NaN, which ends the run.
  Value below = f.make<onnx::LessOp>(labels, f.like(labels, 0));
  Value noClass = f.make<onnx::OrOp>(below, f.make<onnx::GreaterOrEqualOp>(labels, f.like(labels, classes)));
  perLabel = f.where(noClass, f.like(perLabel, std::numeric_limits<double>::quiet_NaN()), perLabel);
  Value weight;
  if (loss.ignoreIndex) {
    Value ignored = f.make<onnx::EqualOp>(labels, f.like(labels, static_cast<double>(*loss.ignoreIndex)));
    perLabel = f.where(ignored, f.like(perLabel, 0), perLabel);
    weight = f.total(f.where(ignored, f.like(perLabel, 0), own ? own : f.like(perLabel, 1)));
  } else if (own) {
    weight = f.total(own);
  } else {
    weight = f.constant(scalarLike(x), static_cast<double>(labelsType.getNumElements()));
  }
  return {f.total(perLabel), loss.reduction == recipe::Reduction::Mean ? weight : Value()};
}

LossTerms buildSoftClassLoss(Formula f, const recipe::Loss &loss, Value x, Value labels, int64_t axis) {
  auto type = tensorType(x);
  double classes = static_cast<double>(type.getDimSize(axis)), smoothing = loss.labelSmoothing;
  Value t = f.cast(labels, type.getElementType());
  if (smoothing != 0) t = f.add(f.scale(t, 1 - smoothing), f.like(t, smoothing / classes));
  const ShiftedLogits logits = shiftedLogits(f, x, axis);
  Value each = f.mul(t, f.sub(f.expand(logits.logSum, type.getShape(), axis), logits.z));
  if (!loss.weight.empty()) each = f.mul(each, f.along(type, axis, loss.weight));
  each = withZLoss(f, loss, logits, f.reduceSum(each, axis));
  Value weight = f.constant(scalarLike(x), static_cast<double>(type.getNumElements()) / classes);
  return {f.total(each), loss.reduction == recipe::Reduction::Mean ? weight : Value()};
}

LossTerms buildElementLoss(Formula f, const recipe::Loss &loss, Value x, Value labels, Value isEmpty, double rows) {
  Value t = f.cast(labels, tensorType(x).getElementType());
  if (isEmpty) t = f.where(isEmpty, f.like(t, 0), t);
  Value each;
  switch (loss.kind) {
  case LossKind::Bce:
    each = binaryCrossEntropy(f, x, t);
    break;
  case LossKind::BceWithLogits: { // max(x,0) - x t + log(1 + e^-|x|)
    Value tail = f.make<onnx::Log1pOp>(f.make<onnx::ExpOp>(f.neg(f.make<onnx::AbsOp>(x))));
    if (loss.posWeight.empty()) {
      each = f.add(f.sub(f.make<onnx::MaxOp>(x, f.like(x, 0)), f.mul(x, t)), tail);
      break;
    }
    // (1-t) x + (1 + (w-1) t) (max(-x,0) + log(1 + e^-|x|)) with the weight w of positives
    auto type = tensorType(x);
    Value w =
        loss.posWeight.size() == 1 ? f.like(x, loss.posWeight[0]) : f.along(type, type.getRank() - 1, loss.posWeight);
    Value one = f.like(x, 1), softplus = f.add(f.make<onnx::MaxOp>(f.neg(x), f.like(x, 0)), tail);
    each = f.add(f.mul(f.sub(one, t), x), f.mul(f.add(one, f.mul(f.sub(w, one), t)), softplus));
    break;
  }
  case LossKind::KlDiv: { // t (log t - x), where 0 log 0 is 0
    if (loss.logTarget) {
      each = f.mul(f.make<onnx::ExpOp>(t), f.sub(t, x));
      break;
    }
    Value isThere = f.make<onnx::GreaterOp>(t, f.like(t, 0));
    each = f.sub(f.only(isThere, f.mul(t, f.make<onnx::LogOp>(t))), f.mul(t, x));
    break;
  }
  case LossKind::L1:
    each = f.make<onnx::AbsOp>(f.sub(x, t));
    break;
  case LossKind::Huber: { // |d| <= delta: d^2 / 2, else delta (|d| - delta/2)
    Value d = f.sub(x, t), size = f.make<onnx::AbsOp>(d), delta = f.like(x, loss.huberDelta);
    Value line = f.mul(delta, f.sub(size, f.like(x, loss.huberDelta / 2)));
    each = f.where(f.make<onnx::LessOrEqualOp>(size, delta), f.scale(f.mul(d, d), 0.5), line);
    break;
  }
  default: { // mse
    Value d = f.sub(x, t);
    each = f.mul(d, d);
  }
  }
  const auto type = tensorType(x);
  const bool isOfBatch = loss.reduction == recipe::Reduction::BatchMean && type.getRank() > 0;
  const auto counted = static_cast<double>(isOfBatch ? type.getDimSize(0) : type.getNumElements());
  Value count = f.constant(scalarLike(x), counted);
  if (isEmpty) each = f.where(isEmpty, f.like(each, 0), each);
  if (isOfBatch && rows > 0) {
    count = f.constant(scalarLike(x), rows);
  } else if (isEmpty) {
    Value elements = f.total(f.cast(f.make<onnx::NotOp>(isEmpty), type.getElementType()));
    count = f.scale(elements, counted / static_cast<double>(type.getNumElements()));
  }
  return {f.total(each), loss.reduction == recipe::Reduction::Sum ? Value() : count};
}

} // namespace cleave::training
