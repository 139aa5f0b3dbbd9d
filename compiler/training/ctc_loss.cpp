// The forward recursion of Graves et al. (Connectionist Temporal Classification, 2006) in logarithms, unrolled:
//
//   a[0, s] = y[0, l_s], s < 2
//   a[t, s] = y[t, l_s] + log(e^a[t-1, s] + e^a[t-1, s-1] + e^a[t-1, s-2])       the last where l_s != l_s-2
//   loss = -log(e^a[T-1, 2 L] + e^a[T-1, 2 L - 1])
//
// where l has a blank before, between and behind the L labels. What cannot be is `never`, a number so low that its
// exponential is 0 beside any other, and whose gradient is no NaN. Behind a sample's last step y is `over`, beside
// which the sum of all `never` is small: a that is as high stays as it was. So no step has a number of its own, and its
// kernels are those of all others, compiled once.
#include "compiler/training/losses.h"
#include <limits>

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;

namespace cleave::training {
namespace {

constexpr double never = -1e30, over = 1e36;

struct Ctc {
  Formula f;
  int64_t samples, places; // places: 2 S + 1

  Value constant(Type element, ArrayRef<int64_t> shape, double value) {
    return f.constant(RankedTensorType::get(shape, element), value);
  }
  Value joined(ArrayRef<Value> parts, int64_t dim) { return f.make<onnx::ConcatOp>(ValueRange(parts), dim); }
  // [samples, count] from `first` on.
  Value columns(Value x, int64_t first, int64_t count) {
    return f.make<onnx::SliceOp>(x, ArrayRef<int64_t>{0, first}, ArrayRef<int64_t>{samples, count},
                                 ArrayRef<int64_t>{1, 1});
  }
  Value ofSample(Value x) { return f.expand(x, {samples, places}, {1}); }
  // log of the sum of exponentials.
  Value logSum(ArrayRef<Value> terms) {
    Value most = terms[0];
    for (Value term : terms.drop_front()) most = f.make<onnx::MaxOp>(most, term);
    most = f.make<onnx::StopGradientOp>(most);
    SmallVector<Value> exponentials;
    for (Value term : terms) exponentials.push_back(f.make<onnx::ExpOp>(f.sub(term, most)));
    return f.add(most, f.make<onnx::LogOp>(f.sum(exponentials)));
  }
};

} // namespace

LossTerms buildCtcLoss(Formula f, const recipe::Loss &loss, Value x, Value targets, Value inputLengths,
                       Value targetLengths) {
  const auto type = tensorType(x);
  const int64_t steps = type.getDimSize(0), samples = type.getDimSize(1), classes = type.getDimSize(2);
  const int64_t longest = tensorType(targets).getDimSize(1), places = 2 * longest + 1;
  Type element = type.getElementType(), i64 = tensorType(targets).getElementType();
  Ctc c{f, samples, places};
  auto below = [&](Value a, Value b) { return f.make<onnx::LessOp>(a, b); };
  auto either = [&](Value a, Value b) { return f.make<onnx::OrOp>(a, b); };

  // Blanks behind the target's end, and in place of what is no label.
  Value number = f.make<onnx::IotaOp>(tensorType(targets), 1, ArrayAttr());
  Value blank = f.like(targets, static_cast<double>(loss.blank));
  Value isBehind = f.make<onnx::GreaterOrEqualOp>(number, f.expand(targetLengths, {samples, longest}, {1}));
  Value noLabel = either(either(below(targets, f.like(targets, 0)), f.make<onnx::EqualOp>(targets, blank)),
                         f.make<onnx::GreaterOrEqualOp>(targets, f.like(targets, static_cast<double>(classes))));
  Value labels = f.where(either(isBehind, noLabel), blank, targets);
  Value noClass = f.make<onnx::AndOp>(noLabel, f.make<onnx::NotOp>(isBehind));

  // [samples, places]: blank, label, blank, ..., label, blank.
  auto column = [&](Value x) { return f.make<onnx::ReshapeOp>(x, ArrayRef<int64_t>{samples, longest, 1}); };
  Value pairs = c.joined({column(blank), column(labels)}, 2);
  labels = c.joined({f.make<onnx::ReshapeOp>(pairs, ArrayRef<int64_t>{samples, 2 * longest}),
                     c.constant(i64, {samples, 1}, static_cast<double>(loss.blank))},
                    1);
  Value place = f.make<onnx::IotaOp>(tensorType(labels), 1, ArrayAttr());
  Value last = c.ofSample(f.add(targetLengths, targetLengths));

  // y[t, sample, place]
  Value table = f.make<onnx::TransposeOp>(x, ArrayRef<int64_t>{1, 2, 0});
  Value y = f.make<onnx::GatherOp>(table, labels, 1, ArrayAttr(), IntegerAttr(), 1);
  Value step = f.make<onnx::IotaOp>(RankedTensorType::get({samples, places, steps}, i64), 2, ArrayAttr());
  Value isWithin = below(step, f.expand(inputLengths, {samples, places, steps}, {1, 2}));
  y = f.where(isWithin, f.make<onnx::MaxOp>(y, f.like(y, never)), f.like(y, over));
  y = f.make<onnx::TransposeOp>(y, ArrayRef<int64_t>{2, 0, 1});
  auto at = [&](int64_t t) {
    Value one = f.make<onnx::SliceOp>(y, ArrayRef<int64_t>{t, 0, 0}, ArrayRef<int64_t>{1, samples, places},
                                      ArrayRef<int64_t>{1, 1, 1});
    return f.make<onnx::ReshapeOp>(one, ArrayRef<int64_t>{samples, places});
  };

  // Two columns before the first stand for what is before the beginning.
  Value before = c.constant(element, {samples, 2}, never);
  Value two = c.joined({c.constant(i64, {samples, 2}, static_cast<double>(loss.blank)), labels}, 1);
  Value same = f.make<onnx::EqualOp>(labels, c.columns(two, 0, places));
  Value first = at(0), nothing = f.like(first, never);
  Value alpha = f.where(below(place, f.like(place, 2)), first, nothing);
  for (int64_t t = 1; t < steps; ++t) {
    Value padded = c.joined({before, alpha}, 1);
    Value skipping = f.where(same, nothing, c.columns(padded, 0, places));
    Value next = f.add(c.logSum({alpha, c.columns(padded, 1, places), skipping}), at(t));
    alpha = f.where(f.make<onnx::GreaterOrEqualOp>(next, f.like(next, over / 2)), alpha, next); // NaN is next
  }

  Value isEnd = either(f.make<onnx::EqualOp>(place, last), f.make<onnx::EqualOp>(f.add(place, f.like(place, 1)), last));
  Value ends = f.where(isEnd, alpha, nothing);
  Value most = f.make<onnx::StopGradientOp>(f.make<onnx::ReduceMaxOp>(ends, int64_t(1)));
  Value sum = f.reduceSum(f.make<onnx::ExpOp>(f.sub(ends, c.ofSample(most))), 1);
  Value each = f.neg(f.add(most, f.make<onnx::LogOp>(sum)));
  // Without steps there is the empty target alone, for sure.
  auto isZero = [&](Value x) { return f.make<onnx::EqualOp>(x, f.like(x, 0)); };
  Value isEmpty = isZero(targetLengths), hasNoSteps = isZero(inputLengths);
  Value isTooLarge = f.make<onnx::GreaterOrEqualOp>(each, f.like(each, -never / 1e3)); // NaN is not
  Value isPossible =
      f.make<onnx::AndOp>(f.make<onnx::NotOp>(isTooLarge), either(isEmpty, f.make<onnx::NotOp>(hasNoSteps)));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  each = f.where(isPossible, each, f.like(each, loss.zeroInfinity ? 0 : infinity));
  each = f.where(f.make<onnx::AndOp>(isEmpty, hasNoSteps), f.like(each, 0), each);

  // A label that is no class, and lengths that there cannot be, must not train silently.
  auto countOf = [&](Value is) {
    auto type = RankedTensorType::get(tensorType(is).getShape(), element);
    return f.reduceSum(f.where(is, f.constant(type, 1), f.constant(type, 0)), 1);
  };
  auto isOneOf = [&](Value length, int64_t count) { // 0 to count - 1, which data are held against (input_bounds.h)
    auto type = RankedTensorType::get({samples, count}, i64);
    Value index = f.make<onnx::IotaOp>(type, 1, ArrayAttr());
    return countOf(f.make<onnx::EqualOp>(f.expand(length, type.getShape(), {1}), index));
  };
  Value right = f.mul(isOneOf(inputLengths, steps + 1), isOneOf(targetLengths, longest + 1));
  Value isRight = f.make<onnx::GreaterOp>(f.sub(right, countOf(noClass)), f.like(right, 0));
  each = f.where(isRight, each, f.like(each, std::numeric_limits<double>::quiet_NaN()));

  if (loss.reduction == recipe::Reduction::Sum) return {f.total(each), {}};
  Value length = f.cast(targetLengths, element);
  Value mean = f.total(f.div(each, f.make<onnx::MaxOp>(length, f.like(length, 1))));
  return {mean, f.like(mean, static_cast<double>(samples))};
}

} // namespace cleave::training
