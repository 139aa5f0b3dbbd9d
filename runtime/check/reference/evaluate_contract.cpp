// Contract: both operands are brought to [batch, m, k] and [batch, k, n] in doubles, multiplied row by row, and the
// product is brought to the order of the result's indices.
#include "runtime/check/reference/evaluation.h"
#include <algorithm>

namespace cleave::runtime {
namespace {

bool holds(const Ints &list, int64_t value) { return std::find(list.begin(), list.end(), value) != list.end(); }

// The elements of x (dimensions named `from`) in the order of the index names `to`.
std::vector<double> reorder(const double *x, const Ints &shape, const Ints &from, const Ints &to) {
  Ints strides = rowMajorStrides(shape), sizes, picked;
  for (int64_t name : to) {
    size_t d = std::find(from.begin(), from.end(), name) - from.begin();
    sizes.push_back(shape[d]);
    picked.push_back(strides[d]);
  }
  std::vector<double> y(elementCount(sizes));
  forEachIndex(sizes, [&](int64_t linear, const Ints &index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * picked[d];
    y[linear] = x[at];
  });
  return y;
}

HostTensor contract(const Evaluation &e) {
  const HostTensor &lhs = e.operand(0), &rhs = e.operand(1);
  const Ints &left = e.ints("lhs_indices"), &right = e.ints("rhs_indices"), &out = e.ints("result_indices");
  e.check(left.size() == lhs.shape.size() && right.size() == rhs.shape.size(), "needs an index for each dimension");
  std::map<int64_t, int64_t> sizes;
  for (size_t d = 0; d < left.size(); ++d) sizes[left[d]] = lhs.shape[d];
  for (size_t d = 0; d < right.size(); ++d) {
    auto [at, isNew] = sizes.try_emplace(right[d], rhs.shape[d]);
    e.check(isNew || at->second == rhs.shape[d], "has operands whose shared index differs in size");
  }
  Ints batch, rows, columns, summed;
  auto extent = [&](const Ints &names) {
    int64_t size = 1;
    for (int64_t name : names) size *= sizes.at(name);
    return size;
  };
  for (int64_t name : out) {
    bool inLeft = holds(left, name), inRight = holds(right, name);
    e.check(inLeft || inRight, "has a result index that no operand has");
    (inLeft && inRight ? batch : inLeft ? rows : columns).push_back(name);
  }
  for (int64_t name : left)
    if (!holds(out, name)) {
      e.check(holds(right, name), "has an index in one operand alone");
      summed.push_back(name);
    }
  for (int64_t name : right) e.check(holds(out, name) || holds(left, name), "has an index in one operand alone");
  auto joined = [](std::initializer_list<const Ints *> lists) {
    Ints all;
    for (const Ints *list : lists) all.insert(all.end(), list->begin(), list->end());
    return all;
  };
  Ints productOrder = joined({&batch, &rows, &columns});
  std::vector<double> a = reorder(Reals(lhs).data(), lhs.shape, left, joined({&batch, &rows, &summed}));
  std::vector<double> b = reorder(Reals(rhs).data(), rhs.shape, right, joined({&batch, &summed, &columns}));
  int64_t count = extent(batch), m = extent(rows), n = extent(columns), k = extent(summed);
  std::vector<double> product(count * m * n, 0.0);
  for (int64_t i = 0; i < count * m; ++i) {
    double *row = product.data() + i * n;
    const double *weights = a.data() + i * k, *block = b.data() + i / m * k * n;
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j) row[j] += weights[l] * block[l * n + j];
  }
  Ints productShape;
  for (int64_t name : productOrder) productShape.push_back(sizes.at(name));
  Ints shape;
  for (int64_t name : out) shape.push_back(sizes.at(name));
  return HostTensor::ofReals(e.type.dtype, shape, reorder(product.data(), productShape, productOrder, out));
}

} // namespace

void addContract(EvaluatorTable &table) { table["Contract"] = contract; }

} // namespace cleave::runtime
