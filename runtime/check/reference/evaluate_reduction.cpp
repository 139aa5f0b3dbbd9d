// ReduceSum, ReduceMax, ReduceMin over sorted axes that disappear.
#include "runtime/check/reference/evaluation.h"
#include <cmath>
#include <limits>

namespace cleave::runtime {
namespace {

// For each element of x, row-major, adds it to the result element it belongs to.
template <typename Wide, typename Combine>
void reduceInto(const Evaluation &e, const Wide *x, const Ints &shape, Wide *y, Combine combine) {
  std::vector<bool> reduced(shape.size(), false);
  for (int64_t axis : e.ints("axes")) {
    e.check(axis >= 0 && axis < int64_t(shape.size()), "has an axis out of range");
    reduced[axis] = true;
  }
  Ints kept;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!reduced[d]) kept.push_back(shape[d]);
  Ints keptStrides = rowMajorStrides(kept), strides(shape.size(), 0);
  for (size_t d = 0, k = 0; d < shape.size(); ++d)
    if (!reduced[d]) strides[d] = keptStrides[k++];
  forEachIndex(shape, [&](int64_t linear, const Ints &index) {
    int64_t to = 0;
    for (size_t d = 0; d < shape.size(); ++d) to += index[d] * strides[d];
    y[to] = combine(y[to], x[linear]);
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
