#include "compiler/training/metrics.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using cleave::onnx::Formula;
using cleave::onnx::tensorType;
using cleave::recipe::MetricKind;

namespace cleave::training {
namespace {

RankedTensorType f32Like(Value x) { return tensorType(x).clone(Float32Type::get(x.getContext())); }
Value asF32(Formula f, Value x) { return f.cast(x, Float32Type::get(x.getContext())); }

// The numbers of classes along `axis` of x, as floats.
Value classNumbers(Formula f, Value x, int64_t axis) { return f.make<onnx::IotaOp>(f32Like(x), axis, ArrayAttr()); }

// The first largest class along `axis`, as a float; the number of classes where one is NaN.
Value firstLargest(Formula f, Value x, int64_t axis) {
  auto shape = tensorType(x).getShape();
  Value largest = f.make<onnx::ReduceMaxOp>(x, axis);
  Value isLargest = f.make<onnx::EqualOp>(x, f.expand(largest, shape, axis));
  Value numbers = classNumbers(f, x, axis);
  return f.make<onnx::ReduceMinOp>(f.where(isLargest, numbers, f.like(numbers, static_cast<double>(shape[axis]))),
                                   axis);
}

// Classes that the model says and the labels say, by sample, as floats. Labels that are no class, and those that the
// loss ignores, do not count; null: all count.
struct Classes {
  Value said, wanted, counted;
  int64_t number = 2;
};

Value one(Formula f, Value condition) {
  Value ones = f.constant(f32Like(condition), 1);
  return f.only(condition, ones);
}
Value countedOnly(Formula f, const Classes &classes, Value x) {
  return classes.counted ? f.only(classes.counted, x) : x;
}

Classes classesOf(Formula f, const recipe::Metric &metric, const recipe::Loss &loss, const Compared &of) {
  Value x = of.output, t = of.labels;
  if (metric.isBinary) {
    const double middle = loss.kind == recipe::LossKind::Bce ? 0.5 : 0;
    return {one(f, f.make<onnx::GreaterOp>(x, f.like(x, middle))), one(f, f.make<onnx::GreaterOp>(t, f.like(t, 0.5)))};
  }
  Classes classes{firstLargest(f, x, of.axis), {}, {}, tensorType(x).getDimSize(of.axis)};
  if (tensorType(t).getRank() == tensorType(x).getRank()) {
    classes.wanted = firstLargest(f, asF32(f, t), of.axis);
    return classes;
  }
  classes.wanted = asF32(f, t);
  classes.counted = f.make<onnx::AndOp>(f.make<onnx::GreaterOrEqualOp>(t, f.like(t, 0)),
                                        f.make<onnx::LessOp>(t, f.like(t, static_cast<double>(classes.number))));
  if (loss.ignoreIndex && *loss.ignoreIndex >= 0 && *loss.ignoreIndex < classes.number) {
    Value ignored = f.make<onnx::EqualOp>(t, f.like(t, static_cast<double>(*loss.ignoreIndex)));
    classes.counted = f.make<onnx::AndOp>(classes.counted, f.make<onnx::NotOp>(ignored));
  }
  return classes;
}

// Whether the wanted class is among the first k, as 0 or 1: of equals the one of the smaller number comes first. NaN: no.
Value isAmongFirst(Formula f, const Compared &of, const Classes &classes, int64_t k) {
  Value x = of.output, numbers = classNumbers(f, x, of.axis);
  auto shape = tensorType(x).getShape();
  Value wanted = f.expand(classes.wanted, shape, of.axis);
  Value isWanted = f.make<onnx::EqualOp>(numbers, wanted);
  Value own = f.expand(f.reduceSum(f.only(isWanted, x), of.axis), shape, of.axis);
  Value follows = f.make<onnx::AndOp>(f.make<onnx::EqualOp>(x, own), f.make<onnx::GreaterOrEqualOp>(numbers, wanted));
  Value isBehind = f.make<onnx::OrOp>(f.make<onnx::LessOp>(x, own), follows); // or is the wanted one itself
  Value behind = f.reduceSum(one(f, isBehind), of.axis);
  return one(f, f.make<onnx::GreaterOp>(behind, f.like(behind, static_cast<double>(shape[of.axis] - k))));
}

// [class wanted, class said]: samples.
Value confusion(Formula f, const Classes &classes) {
  SmallVector<int64_t> shape(tensorType(classes.said).getShape());
  const int64_t rank = static_cast<int64_t>(shape.size());
  shape.push_back(classes.number);
  auto oneOf = [&](Value number) {
    Value wide = f.expand(number, shape, rank);
    return f.make<onnx::EqualOp>(classNumbers(f, wide, rank), wide);
  };
  SmallVector<int64_t> lhs = llvm::to_vector(llvm::seq<int64_t>(0, rank + 1)), rhs = lhs;
  rhs.back() = rank + 1;
  Value wanted = one(f, oneOf(classes.wanted));
  if (classes.counted) wanted = f.mul(wanted, f.expand(one(f, classes.counted), shape, rank));
  return f.make<onnx::ContractOp>(wanted, one(f, oneOf(classes.said)), lhs, rhs, SmallVector<int64_t>{rank, rank + 1});
}

Value meanCount(Formula f, Value x) {
  return f.constant(RankedTensorType::get({}, Float32Type::get(x.getContext())),
                    static_cast<double>(tensorType(x).getNumElements()));
}

} // namespace

Result<SmallVector<StepResult>> buildMetric(Formula f, const recipe::Metric &metric, const recipe::Loss &loss,
                                            Compared of) {
  const std::string name = (metricPrefix + metric.name).str(), count = name + ".count";
  if (metric.kind == MetricKind::Perplexity) return SmallVector<StepResult>{}; // of the loss
  of.output = asF32(f, of.output);
  if (metric.kind == MetricKind::Mean)
    return SmallVector<StepResult>{{name, {}, f.total(of.output)}, {count, {}, meanCount(f, of.output)}};
  auto x = tensorType(of.output), t = tensorType(of.labels);
  if (of.axis < 0) of.axis += x.getRank();
  SmallVector<int64_t> ofClasses(x.getShape());
  if (of.axis >= 0 && of.axis < x.getRank()) ofClasses.erase(ofClasses.begin() + of.axis);
  const bool areNumbers = isa<FloatType>(t.getElementType()) && t.getShape() == x.getShape(),
             areClasses = isa<IntegerType>(t.getElementType()) && t.getShape() == ArrayRef(ofClasses);
  const bool wantsNumbers = metric.kind == MetricKind::MeanAbsoluteError;
  if (wantsNumbers || metric.isBinary ? !areNumbers : !areNumbers && !areClasses)
    return inputError(llvm::formatv("cannot compare the output {0} with labels {1}", textOf(x), textOf(t)).str());
  if (wantsNumbers) {
    Value distance = f.make<onnx::AbsOp>(f.sub(of.output, asF32(f, of.labels)));
    return SmallVector<StepResult>{{name, {}, f.total(distance)}, {count, {}, meanCount(f, distance)}};
  }
  if (!metric.isBinary && (of.axis < 0 || of.axis >= x.getRank() || x.getDimSize(of.axis) < 2))
    return inputError(llvm::formatv("needs an output of two classes or more, {0} has fewer", textOf(x)).str());
  if (metric.kind == MetricKind::TopK && metric.k > x.getDimSize(of.axis))
    return inputError(llvm::formatv("the output {0} has fewer than {1} classes", textOf(x), metric.k).str());
  const Classes classes = classesOf(f, metric, loss, of);
  if (metric.kind == MetricKind::F1 || metric.kind == MetricKind::Confusion)
    return SmallVector<StepResult>{{name, {}, confusion(f, classes)}};
  Value hit = metric.kind == MetricKind::TopK ? isAmongFirst(f, of, classes, metric.k)
                                              : one(f, f.make<onnx::EqualOp>(classes.said, classes.wanted));
  Value all = classes.counted ? f.total(one(f, classes.counted)) : meanCount(f, hit);
  return SmallVector<StepResult>{{name, {}, f.total(countedOnly(f, classes, hit))}, {count, {}, all}};
}

} // namespace cleave::training
