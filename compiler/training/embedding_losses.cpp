#include "compiler/training/losses.h"
#include <limits>

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;
using cleave::recipe::LossKind;

namespace cleave::training {
namespace {

Value relu(Formula f, Value x) { return f.make<onnx::ReluOp>(x); }
Value equals(Formula f, Value x, double number) { return f.make<onnx::EqualOp>(x, f.like(x, number)); }

// `same` where t is 1, `other` where it is -1. Another target must not train silently: the loss becomes NaN.
Value byTarget(Formula f, Value t, Value same, Value other) {
  Value none = f.like(same, std::numeric_limits<double>::quiet_NaN());
  return f.where(equals(f, t, 1), same, f.where(equals(f, t, -1), other, none));
}

// The cosine of rows, where 1e-12 is added to both squares.
Value cosine(Formula f, Value a, Value b) {
  const int64_t last = tensorType(a).getRank() - 1;
  auto square = [&](Value x) {
    Value sum = f.reduceSum(f.mul(x, x), last);
    return f.add(sum, f.like(sum, 1e-12));
  };
  return f.div(f.reduceSum(f.mul(a, b), last), f.make<onnx::SqrtOp>(f.mul(square(a), square(b))));
}

// The norm of a - b + eps, of rows.
Value distance(Formula f, const recipe::Loss &loss, Value a, Value b) {
  const int64_t last = tensorType(a).getRank() - 1;
  Value d = f.add(f.sub(a, b), f.like(a, loss.eps));
  if (loss.p == 1) return f.reduceSum(f.make<onnx::AbsOp>(d), last);
  return f.make<onnx::SqrtOp>(f.reduceSum(f.mul(d, d), last));
}

} // namespace

bool isEmbeddingLoss(LossKind kind) {
  return kind == LossKind::HingeEmbedding || kind == LossKind::CosineEmbedding || kind == LossKind::MarginRanking ||
         kind == LossKind::Triplet;
}

LossTerms buildEmbeddingLoss(Formula f, const recipe::Loss &loss, ArrayRef<Value> outputs, Value t) {
  Value x = outputs[0], each;
  auto margin = [&](Value as) { return f.like(as, loss.margin); };
  switch (loss.kind) {
  case LossKind::HingeEmbedding: // x, or max(0, margin - x)
    each = byTarget(f, t, x, relu(f, f.sub(margin(x), x)));
    break;
  case LossKind::CosineEmbedding: { // 1 - cos, or max(0, cos - margin)
    Value cos = cosine(f, x, outputs[1]);
    each = byTarget(f, t, f.sub(f.like(cos, 1), cos), relu(f, f.sub(cos, margin(cos))));
    break;
  }
  case LossKind::MarginRanking: // max(0, margin - t (x1 - x2))
    each = relu(f, f.sub(margin(x), f.mul(t, f.sub(x, outputs[1]))));
    break;
  default: { // triplet: max(0, |a - p| - |a - n| + margin)
    Value far = distance(f, loss, x, outputs[2]);
    if (loss.swap) far = f.make<onnx::MinOp>(far, distance(f, loss, outputs[1], outputs[2]));
    each = relu(f, f.add(f.sub(distance(f, loss, x, outputs[1]), far), margin(far)));
  }
  }
  Value sum = f.total(each), count = f.like(sum, static_cast<double>(tensorType(each).getNumElements()));
  return {sum, loss.reduction == recipe::Reduction::Mean ? count : Value()};
}

} // namespace cleave::training
