// ReduceSum, ReduceMax, ReduceMin over sorted axes that disappear.
#include "runtime/check/reference/evaluation.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace cleave::runtime {
namespace {

constexpr int64_t outputsAtATime = 256;

// y[kept] = combine(y[kept], x[kept, reduced]) for the elements of x in row-major order, on all threads.
template <typename Wide, typename Combine>
void reduceInto(const Evaluation &e, const Wide *x, const Ints &shape, Wide *y, Combine combine) {
  std::vector<bool> isReduced(shape.size(), false);
  for (int64_t axis : e.ints("axes")) {
    e.check(axis >= 0 && axis < int64_t(shape.size()), "has an axis out of range");
    isReduced[axis] = true;
  }
  const Ints strides = rowMajorStrides(shape);
  Ints sizes[2], steps[2]; // of the kept dimensions and of the reduced ones
  for (size_t d = 0; d < shape.size(); ++d) {
    sizes[isReduced[d]].push_back(shape[d]);
    steps[isReduced[d]].push_back(strides[d]);
  }
  auto offset = [&](const Ints &index, bool reduced) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * steps[reduced][d];
    return at;
  };
  Ints starts(static_cast<size_t>(elementCount(sizes[0])));
  forEachIndex(sizes[0], [&](int64_t linear, const Ints &index) { starts[linear] = offset(index, false); });
  parallelFor(int64_t(starts.size()), outputsAtATime, [&](int64_t first, int64_t last) {
    for (int64_t begin = first; begin < last; begin += outputsAtATime)
      forEachIndex(sizes[1], [&](int64_t, const Ints &index) {
        const Wide *from = x + offset(index, true);
        for (int64_t i = begin, end = std::min(begin + outputsAtATime, last); i < end; ++i)
          y[i] = combine(y[i], from[starts[i]]);
      });
  });
}

double maximum(double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : a > b ? a : b; }
double minimum(double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : a < b ? a : b; }

HostTensor reduce(const Evaluation &e) {
  const HostTensor &x = e.operand(0);
  bool sum = e.op == "ReduceSum", max = e.op == "ReduceMax";
  if (isFloat(x.dtype)) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    RealResult result(e.type, sum ? 0 : max ? -infinity : infinity);
    Reals values(x);
    if (sum)
      reduceInto(e, values.data(), x.shape, result.data(), [](double a, double b) { return a + b; });
    else
      reduceInto(e, values.data(), x.shape, result.data(), max ? maximum : minimum);
    return result.finish();
  }
  using Limits = std::numeric_limits<int64_t>;
  std::vector<int64_t> values = x.integers();
  std::vector<int64_t> result(elementCount(e.type.shape), sum ? 0 : max ? Limits::min() : Limits::max());
  if (sum)
    reduceInto(e, values.data(), x.shape, result.data(), [](int64_t a, int64_t b) { return a + b; });
  else if (max)
    reduceInto(e, values.data(), x.shape, result.data(), [](int64_t a, int64_t b) { return std::max(a, b); });
  else
    reduceInto(e, values.data(), x.shape, result.data(), [](int64_t a, int64_t b) { return std::min(a, b); });
  return HostTensor::ofIntegers(e.type.dtype, e.type.shape, result);
}

} // namespace

void addReductions(EvaluatorTable &table) {
  table["ReduceSum"] = reduce;
  table["ReduceMax"] = reduce;
  table["ReduceMin"] = reduce;
}

} // namespace cleave::runtime
