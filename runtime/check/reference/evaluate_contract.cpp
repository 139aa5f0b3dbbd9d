// Contract: both operands are brought to [batch, m, k] and [batch, k, n] in doubles, multiplied, and the product is
// brought to the order of the result's indices. GroupedContract: so are the rows of each group, one after another.
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

Ints joined(const Ints &a, const Ints &b) {
  Ints all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

// The rows of each group, in their order.
std::vector<Ints> rowsOfGroups(const Evaluation &e, const HostTensor &groups, int64_t count) {
  std::vector<Ints> rows(static_cast<size_t>(count));
  const Reals numbers(groups);
  for (int64_t row = 0; row < groups.elements(); ++row) {
    const auto number = static_cast<int64_t>(numbers[row]), group = number < 0 ? number + count : number;
    e.check(group >= 0 && group < count, "has a group that there is not");
    rows[static_cast<size_t>(group)].push_back(row);
  }
  return rows;
}

HostTensor groupedContract(const Evaluation &e) {
  const HostTensor &lhs = e.operand(0), &rhs = e.operand(1);
  const Ints &left = e.ints("lhs_indices"), &right = e.ints("rhs_indices"), &out = e.ints("result_indices"),
             &row = e.ints("row_indices");
  const int64_t group = e.integer("group_index"), count = e.integer("group_count");
  const bool sumsRows = holds(out, group);
  std::map<int64_t, int64_t> sizes{{group, count}};
  for (size_t d = 0; d < left.size(); ++d) sizes[left[d]] = lhs.shape[d];
  for (size_t d = 0; d < right.size(); ++d) sizes[right[d]] = rhs.shape[d];
  auto extent = [&](const Ints &names) {
    int64_t size = 1;
    for (int64_t name : names) size *= sizes.at(name);
    return size;
  };
  // The matrix of a group is [k, n], of lhs' index and of the other one.
  Ints k, n;
  for (int64_t name : left)
    if (!holds(row, name)) k.push_back(name);
  for (int64_t name : right)
    if (!holds(row, name) && !holds(k, name) && name != group) n.push_back(name);
  const Ints matrices = joined({group}, joined(k, n));
  const Ints productOrder = sumsRows ? matrices : joined(row, n);
  Ints productShape, shape;
  for (int64_t name : productOrder) productShape.push_back(sizes.at(name));
  for (int64_t name : out) shape.push_back(sizes.at(name));
  const Reordered a(lhs, left, joined(row, k)), b(rhs, right, sumsRows ? joined(row, n) : matrices);
  const int64_t K = extent(k), N = extent(n);
  HostTensor product = HostTensor::unset(plan::F64, productShape);
  double *y = product.as<double>();
  std::fill(y, y + product.elements(), 0.0);
  const std::vector<Ints> rows = rowsOfGroups(e, e.operand(2), count);
  for (size_t g = 0; g < rows.size(); ++g) {
    const auto m = static_cast<int64_t>(rows[g].size());
    if (m == 0) continue;
    std::vector<double> x(static_cast<size_t>(m * K)), other(static_cast<size_t>(m * N));
    double *matrix = (sumsRows ? y : const_cast<double *>(b.data())) + static_cast<int64_t>(g) * K * N;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < K; ++j) // of a sum over rows the transpose
        x[static_cast<size_t>(sumsRows ? j * m + i : i * K + j)] = a.data()[rows[g][size_t(i)] * K + j];
    if (sumsRows) {
      for (int64_t i = 0; i < m; ++i) std::copy_n(b.data() + rows[g][size_t(i)] * N, N, other.data() + i * N);
      multiplyBatch(1, x.data(), other.data(), matrix, K, N, m);
    } else {
      multiplyBatch(1, x.data(), matrix, other.data(), m, N, K);
      for (int64_t i = 0; i < m; ++i) std::copy_n(other.data() + i * N, N, y + rows[g][size_t(i)] * N);
    }
  }
  RealResult result({e.type.dtype, shape});
  reorder(y, productShape, productOrder, out, result.data());
  return result.finish();
}

} // namespace

void addContract(EvaluatorTable &table) {
  table["Contract"] = contract;
  table["GroupedContract"] = groupedContract;
}

} // namespace cleave::runtime
