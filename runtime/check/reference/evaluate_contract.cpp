// Contract: both operands are brought to [batch, m, k] and [batch, k, n] in doubles, multiplied, and the product is
// brought to the order of the result's indices.
#include "runtime/check/reference/evaluation.h"
#include "runtime/check/reference/matrix_product.h"
#include <algorithm>

namespace cleave::runtime {
namespace {

bool holds(const Ints &list, int64_t value) { return std::find(list.begin(), list.end(), value) != list.end(); }

// The elements of x (dimensions named `from`) in the order of the index names `to`.
void reorder(const double *x, const Ints &shape, const Ints &from, const Ints &to, double *y) {
  Ints strides = rowMajorStrides(shape), sizes, picked;
  for (int64_t name : to) {
    size_t d = std::find(from.begin(), from.end(), name) - from.begin();
    sizes.push_back(shape[d]);
    picked.push_back(strides[d]);
  }
  copyStrided(reinterpret_cast<const std::byte *>(x), 0, picked, sizes, sizeof(double),
              reinterpret_cast<std::byte *>(y));
}

// A copy in another order of its dimensions, where the order is another one.
class Reordered {
public:
  Reordered(const HostTensor &x, const Ints &from, const Ints &to) : reals(x) {
    if (from == to) return;
    held = HostTensor::unset(plan::F64, {x.elements()});
    reorder(reals.data(), x.shape, from, to, held.as<double>());
  }
  const double *data() const { return held.data.empty() ? reals.data() : held.as<double>(); }

private:
  Reals reals;
  HostTensor held;
};

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
  Reordered a(lhs, left, joined({&batch, &rows, &summed})), b(rhs, right, joined({&batch, &summed, &columns}));
  Ints productShape, shape;
  for (int64_t name : productOrder) productShape.push_back(sizes.at(name));
  for (int64_t name : out) shape.push_back(sizes.at(name));
  TensorType type{e.type.dtype, shape};
  RealResult result(type);
  int64_t count = extent(batch), m = extent(rows), n = extent(columns), k = extent(summed);
  if (productOrder == out) {
    multiplyBatch(count, a.data(), b.data(), result.data(), m, n, k);
  } else {
    HostTensor product = HostTensor::unset(plan::F64, productShape);
    multiplyBatch(count, a.data(), b.data(), product.as<double>(), m, n, k);
    reorder(product.as<double>(), productShape, productOrder, out, result.data());
  }
  return result.finish();
}

} // namespace

void addContract(EvaluatorTable &table) { table["Contract"] = contract; }

} // namespace cleave::runtime
