#include "compiler/codegen/commands/contract_layout.h"
#include <algorithm>

namespace cleave::codegen {
namespace {

// A collapsed dimension: some adjacent indices of one group seen as one, in each of the three tensors (0: absent).
struct Run {
  int64_t size = 1;
  int64_t lhs = 0, rhs = 0, out = 0;
};

struct Groups {
  IndexOrder batch, m, n, k;
};

Groups classify(const ContractIndices &c) {
  Groups groups;
  for (size_t i = 0; i < c.sizes.size(); ++i) {
    if (c.sizes[i] == 1) continue;
    bool lhs = c.lhs[i].has_value(), rhs = c.rhs[i].has_value(), out = c.out[i].has_value();
    IndexOrder &group = !out ? groups.k : lhs && rhs ? groups.batch : lhs ? groups.m : groups.n;
    group.push_back(i);
  }
  return groups;
}

void sortByStride(IndexOrder &group, const IndexStrides &strides) {
  std::sort(group.begin(), group.end(), [&](int64_t a, int64_t b) {
    int64_t strideA = strides[a].value_or(0), strideB = strides[b].value_or(0);
    return strideA != strideB ? strideA > strideB : a < b;
  });
}

std::vector<Run> collapse(const IndexOrder &group, const ContractIndices &c) {
  std::vector<Run> runs;
  for (int64_t index : group) {
    Run run{c.sizes[index], c.lhs[index].value_or(0), c.rhs[index].value_or(0), c.out[index].value_or(0)};
    if (!runs.empty()) {
      Run &outer = runs.back();
      auto joins = [&](int64_t outerStride, int64_t innerStride) { return outerStride == run.size * innerStride; };
      if (joins(outer.lhs, run.lhs) && joins(outer.rhs, run.rhs) && joins(outer.out, run.out)) {
        outer = {outer.size * run.size, run.lhs, run.rhs, run.out};
        continue;
      }
    }
    runs.push_back(run);
  }
  return runs;
}

// Is a matrix with these sizes and strides one that a matrix product can read: one dimension contiguous, the other
// with a leading dimension at least as long? Strides of dimensions of size 1 are free and get chosen here.
bool isMatrix(int64_t rows, int64_t columns, int64_t &rowStride, int64_t &columnStride) {
  if (rows == 1) rowStride = columnStride == 1 ? columns : 1;
  if (columns == 1) columnStride = rowStride == 1 ? rows : 1;
  if (columnStride == 1) return rowStride >= columns;
  return rowStride == 1 && columnStride >= rows;
}

// The largest run becomes the matrix dimension, the others loops around it.
Run takeLargest(std::vector<Run> runs, std::vector<Run> &loops) {
  if (runs.empty()) return {};
  auto largest = std::max_element(runs.begin(), runs.end(), [](const Run &a, const Run &b) { return a.size < b.size; });
  Run matrix = *largest;
  runs.erase(largest);
  loops.insert(loops.end(), runs.begin(), runs.end());
  return matrix;
}

// Fraction of the peak rate that a matrix dimension of this size allows: rough, only to compare layouts.
double efficiency(int64_t size) { return double(size) / double(size + 8); }

constexpr double flopsPerSecond = 1e11, bytesPerSecond = 1e10, secondsPerProduct = 1e-7;

// Is k innermost, and are all sizes of the matrices and all other strides multiples of the alignment?
bool isKMajor(const ContractIndices &c, const std::vector<Run> &loops, const Run &m, const Run &n, const Run &k) {
  auto fits = [&](int64_t number) { return number % c.alignment == 0; };
  return k.lhs == 1 && k.rhs == 1 && fits(m.size) && fits(n.size) && fits(k.size) && fits(m.lhs) && fits(n.rhs) &&
         std::all_of(loops.begin(), loops.end(), [&](const Run &loop) { return fits(loop.lhs) && fits(loop.rhs); });
}

// With every copy already decided (the strides are those after it): the product, or nothing if it cannot be done so.
std::optional<ContractLayout> layOut(const ContractIndices &c, const Groups &groups) {
  std::vector<Run> loops = collapse(groups.batch, c);
  std::vector<Run> contracted = collapse(groups.k, c);
  if (contracted.size() > 1) return std::nullopt;
  Run k = contracted.empty() ? Run{} : contracted.front();
  Run m = takeLargest(collapse(groups.m, c), loops);
  Run n = takeLargest(collapse(groups.n, c), loops);
  if (!isMatrix(m.size, k.size, m.lhs, k.lhs) || !isMatrix(k.size, n.size, k.rhs, n.rhs) ||
      !isMatrix(m.size, n.size, m.out, n.out))
    return std::nullopt;
  if (c.alignment > 0 && !isKMajor(c, loops, m, n, k)) return std::nullopt;

  ContractLayout layout;
  layout.m = m.size, layout.n = n.size, layout.k = k.size;
  double products = 1;
  for (const Run &loop : loops) {
    layout.batch.push_back(loop.size);
    layout.lhsStrides.push_back(loop.lhs);
    layout.rhsStrides.push_back(loop.rhs);
    layout.outStrides.push_back(loop.out);
    products *= loop.size;
  }
  layout.lhsStrides.insert(layout.lhsStrides.end(), {m.lhs, k.lhs});
  layout.rhsStrides.insert(layout.rhsStrides.end(), {k.rhs, n.rhs});
  layout.outStrides.insert(layout.outStrides.end(), {m.out, n.out});
  layout.seconds = products * (secondsPerProduct +
                               2.0 * m.size * n.size * k.size /
                                   (flopsPerSecond * efficiency(m.size) * efficiency(n.size) * efficiency(k.size)));
  if (n.out != 1) { // a column-major result: out^T = rhs^T lhs^T is row-major
    layout.swapped = true;
    std::swap(layout.m, layout.n);
    std::swap(layout.lhsStrides, layout.rhsStrides);
    for (auto *strides : {&layout.lhsStrides, &layout.rhsStrides, &layout.outStrides})
      std::swap((*strides)[strides->size() - 1], (*strides)[strides->size() - 2]);
  }
  return layout;
}

double elements(const ContractIndices &c, const IndexOrder &order) {
  double product = 1;
  for (int64_t index : order) product *= c.sizes[index];
  return product;
}

IndexOrder concatenated(const IndexOrder &a, const IndexOrder &b, const IndexOrder &c) {
  IndexOrder all = a;
  all.insert(all.end(), b.begin(), b.end());
  all.insert(all.end(), c.begin(), c.end());
  return all;
}

} // namespace

IndexStrides denseStrides(const std::vector<int64_t> &sizes, const std::vector<int64_t> &letters) {
  IndexStrides strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = letters.size(); i-- > 0;) {
    strides[letters[i]] = stride;
    stride *= sizes[letters[i]];
  }
  return strides;
}

ContractLayout chooseContractLayout(const ContractIndices &indices) {
  const Groups classes = classify(indices);
  std::optional<ContractLayout> best;
  for (int copies = 0; copies < 8; ++copies) {
    bool copyLhs = copies & 1, copyRhs = copies & 2, copyOut = copies & 4;
    if ((indices.copiesLhs && !copyLhs) || (indices.copiesRhs && !copyRhs)) continue;
    Groups groups = classes;
    // Each group takes the order of a tensor that is not copied.
    auto order = [](IndexOrder &group, std::initializer_list<std::pair<bool, const IndexStrides *>> candidates) {
      for (auto [copied, strides] : candidates)
        if (!copied) return sortByStride(group, *strides);
    };
    order(groups.batch, {{copyOut, &indices.out}, {copyLhs, &indices.lhs}, {copyRhs, &indices.rhs}});
    order(groups.m, {{copyOut, &indices.out}, {copyLhs, &indices.lhs}});
    order(groups.n, {{copyOut, &indices.out}, {copyRhs, &indices.rhs}});
    order(groups.k, {{copyRhs, &indices.rhs}, {copyLhs, &indices.lhs}});

    ContractIndices copied = indices;
    ContractLayout orders;
    double copiedElements = 0;
    auto copy = [&](bool wanted, IndexStrides &strides, std::optional<IndexOrder> &chosen, IndexOrder letters) {
      if (!wanted) return;
      for (size_t i = 0; i < indices.sizes.size(); ++i)
        if (strides[i] && indices.sizes[i] == 1) letters.insert(letters.begin(), i);
      strides = denseStrides(indices.sizes, letters);
      copiedElements += elements(indices, letters);
      chosen = std::move(letters);
    };
    copy(copyLhs, copied.lhs, orders.copyLhs, concatenated(groups.batch, groups.m, groups.k));
    copy(copyRhs, copied.rhs, orders.copyRhs,
         indices.alignment > 0 ? concatenated(groups.batch, groups.n, groups.k)
                               : concatenated(groups.batch, groups.k, groups.n));
    copy(copyOut, copied.out, orders.copyOut, concatenated(groups.batch, groups.m, groups.n));

    std::optional<ContractLayout> layout = layOut(copied, groups);
    if (!layout) continue;
    layout->copyLhs = orders.copyLhs, layout->copyRhs = orders.copyRhs, layout->copyOut = orders.copyOut;
    layout->seconds += copiedElements * 8 / bytesPerSecond;
    if (!best || layout->seconds < best->seconds) best = layout;
  }
  return *best; // copies == 7 lays everything out densely: always possible
}

} // namespace cleave::codegen
