// Grouped products: the rows of each group are brought together, block by block, and multiplied by oneDNN's product of
// matrices, whose number of rows is known only here. Operands of 16 bits are widened to f32 on the way.
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/device/cpu/indices.h"
#include "runtime/engine/device/cpu/widen.h"
#include <algorithm>
#include <dnnl_debug.h>

namespace cleave::runtime {
namespace {

// c [m,n] = a [m,k] b [k,n], added to what c holds when `adds`; all row-major, and a or b as their transposes.
struct Matrices {
  int64_t m, n, k;
  bool isATransposed = false, isBTransposed = false, adds = false;
};
Status multiply(const Matrices &of, const float *a, const float *b, float *c) {
  const dnnl_status_t status =
      dnnl_sgemm(of.isATransposed ? 'T' : 'N', of.isBTransposed ? 'T' : 'N', of.m, of.n, of.k, 1, a,
                 of.isATransposed ? of.m : of.k, b, of.isBTransposed ? of.k : of.n, of.adds ? 1.0f : 0.0f, c, of.n);
  return status == dnnl_success ? Status::ok() : runError(fmt::format("oneDNN: {}", dnnl_status2str(status)));
}
Status multiply(const Matrices &of, const double *a, const double *b, double *c) {
  parallelFor(of.m, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < of.n; ++j) {
        double sum = of.adds ? c[i * of.n + j] : 0;
        for (int64_t x = 0; x < of.k; ++x)
          sum += a[of.isATransposed ? x * of.m + i : i * of.k + x] * b[of.isBTransposed ? j * of.k + x : x * of.n + j];
        c[i * of.n + j] = sum;
      }
  });
  return Status::ok();
}

void load(plan::DType dtype, const std::byte *from, float *to, int64_t count) { widenElements(dtype, from, to, count); }
void load(plan::DType, const std::byte *from, double *to, int64_t count) {
  std::copy_n(reinterpret_cast<const double *>(from), count, to);
}
void store(plan::DType dtype, const float *from, std::byte *to, int64_t count) {
  narrowElements(dtype, from, to, count);
}
void store(plan::DType, const double *from, std::byte *to, int64_t count) {
  std::copy_n(from, count, reinterpret_cast<double *>(to));
}

// Rows of a tensor at any strides.
struct Rows {
  plan::DType dtype;
  std::byte *data;
  int64_t width; // adjacent elements
  std::vector<int64_t> sizes, strides;

  std::byte *at(int64_t row) const {
    int64_t element = 0;
    for (size_t d = sizes.size(); d-- > 0; row /= sizes[d]) element += row % sizes[d] * strides[d];
    return data + element * byteSize(dtype);
  }
};

// The rows of each group one after another, in their order.
class Sorted {
public:
  Status sort(const Indices &groups) {
    groupOf.resize(size_t(groups.count)), order.resize(size_t(groups.count));
    starts.assign(size_t(groups.rows) + 2, 0); // those of no group here come last
    bool bad = false;
    for (int64_t i = 0; i < groups.count; ++i) {
      const int64_t group = groups.row(i, bad);
      groupOf[size_t(i)] = group < 0 ? groups.rows : group;
      ++starts[size_t(groupOf[size_t(i)]) + 1];
    }
    if (bad) return groups.complain();
    for (size_t group = 1; group < starts.size(); ++group) starts[group] += starts[group - 1];
    std::vector<int64_t> next(starts.begin(), starts.end() - 1);
    for (int64_t i = 0; i < groups.count; ++i) order[size_t(next[size_t(groupOf[size_t(i)])]++)] = i;
    return Status::ok();
  }
  std::span<const int64_t> rowsOf(int64_t group) const {
    return std::span(order).subspan(size_t(starts[size_t(group)]),
                                    size_t(starts[size_t(group) + 1] - starts[size_t(group)]));
  }

private:
  std::vector<int64_t> groupOf, order, starts;
};

template <typename Real> class GroupedProduct final : public ScratchCommand {
public:
  GroupedProduct(const plan::GroupedContract &c, const CpuContext &context, const Indices &groups)
      : groups(groups), k(c.k()), n(c.n()), sumsRows(c.sums_rows()), isTransposed(c.transposed()),
        x(rowsOf(c, c.lhs(), k, c.lhs_strides(), context)),
        other(c.sums_rows() ? rowsOf(c, c.rhs(), n, c.rhs_strides(), context) : denseRows(c, context)),
        matrices(c.sums_rows() ? c.out() : c.rhs()), data(context.at(matrices)) {
    const int64_t wanted = (int64_t(1) << 22) / std::max<int64_t>(1, k + n); // some 16 MiB of rows
    block = std::min(groups.count, std::max<int64_t>(64, wanted));
    const bool isNarrow = byteSize(matrices.dtype()) != int64_t(sizeof(Real));
    context.scratch->need(size_t(block * (k + n) + (isNarrow ? k * n : 0)) * sizeof(Real));
    isDirect = !isNarrow;
  }

  void place(const Scratch &scratch) override { rows = reinterpret_cast<Real *>(scratch.base); }

  Status run() override {
    CLEAVE_RETURN_IF_ERROR(sorted.sort(groups));
    for (int64_t group = 0; group < groups.rows; ++group)
      CLEAVE_RETURN_IF_ERROR(sumsRows ? sumRows(group) : multiplyRows(group));
    if (sumsRows) return Status::ok();
    forEach(sorted.rowsOf(groups.rows), n,
            [&](int64_t row, int64_t) { std::fill_n(other.at(row), n * byteSize(other.dtype), std::byte{0}); });
    return Status::ok();
  }

private:
  static Rows rowsOf(const plan::GroupedContract &c, const plan::Buffer &buffer, int64_t width,
                     const google::protobuf::RepeatedField<int64_t> &strides, const CpuContext &context) {
    return {buffer.dtype(),
            context.at(buffer),
            width,
            {c.rows().begin(), c.rows().end()},
            {strides.begin(), strides.end()}};
  }
  static Rows denseRows(const plan::GroupedContract &c, const CpuContext &context) {
    return {c.out().dtype(), context.at(c.out()), c.n(), {elementCount(c.rows())}, {c.n()}};
  }

  // body(row, its place in the block)
  template <typename Body> void forEach(std::span<const int64_t> of, int64_t width, Body body) const {
    parallelFor(int64_t(of.size()), std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, width)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) body(of[size_t(i)], i);
                });
  }
  void bring(const Rows &from, std::span<const int64_t> of, Real *to) const {
    forEach(of, from.width,
            [&](int64_t row, int64_t i) { load(from.dtype, from.at(row), to + i * from.width, from.width); });
  }
  std::byte *matrixOf(int64_t group) const { return data + group * k * n * byteSize(matrices.dtype()); }
  Real *wide() const { return rows + block * (k + n); } // a matrix, where it is narrower in memory

  // Calls body(rows) for one block after another.
  template <typename Body> Status inBlocks(std::span<const int64_t> all, Body body) const {
    for (size_t at = 0; at < all.size(); at += size_t(block))
      CLEAVE_RETURN_IF_ERROR(body(all.subspan(at, std::min(size_t(block), all.size() - at)), at == 0));
    return Status::ok();
  }

  Status multiplyRows(int64_t group) const {
    const std::span<const int64_t> all = sorted.rowsOf(group);
    if (all.empty()) return Status::ok();
    Real *matrix = isDirect ? reinterpret_cast<Real *>(matrixOf(group)) : wide();
    if (!isDirect)
      parallelFor(k * n, 1 << 14, [&](int64_t begin, int64_t end) {
        load(matrices.dtype(), matrixOf(group) + begin * byteSize(matrices.dtype()), matrix + begin, end - begin);
      });
    return inBlocks(all, [&](std::span<const int64_t> some, bool) {
      Real *in = rows, *out = rows + block * k;
      bring(x, some, in);
      const Matrices product{.m = int64_t(some.size()), .n = n, .k = k, .isBTransposed = isTransposed};
      CLEAVE_RETURN_IF_ERROR(multiply(product, in, matrix, out));
      forEach(some, n, [&](int64_t row, int64_t i) { store(other.dtype, out + i * n, other.at(row), n); });
      return Status::ok();
    });
  }

  Status sumRows(int64_t group) const {
    Real *matrix = isDirect ? reinterpret_cast<Real *>(matrixOf(group)) : wide();
    const std::span<const int64_t> all = sorted.rowsOf(group);
    if (all.empty())
      parallelFor(k * n, 1 << 14,
                  [&](int64_t begin, int64_t end) { std::fill(matrix + begin, matrix + end, Real(0)); });
    CLEAVE_RETURN_IF_ERROR(inBlocks(all, [&](std::span<const int64_t> some, bool isFirst) {
      Real *a = rows, *b = rows + block * k;
      bring(x, some, a), bring(other, some, b);
      return multiply({.m = k, .n = n, .k = int64_t(some.size()), .isATransposed = true, .adds = !isFirst}, a, b,
                      matrix);
    }));
    if (!isDirect)
      parallelFor(k * n, 1 << 14, [&](int64_t begin, int64_t end) {
        store(matrices.dtype(), matrix + begin, matrixOf(group) + begin * byteSize(matrices.dtype()), end - begin);
      });
    return Status::ok();
  }

  const Indices groups;
  const int64_t k, n;
  const bool sumsRows, isTransposed;
  const Rows x, other; // other: of the result, or of what is multiplied with x and summed
  const plan::Buffer matrices;
  std::byte *const data; // of the matrices
  int64_t block = 0;     // rows
  bool isDirect = false; // matrices are multiplied where they lie
  Real *rows = nullptr;
  Sorted sorted;
};

} // namespace

Result<Prepared> prepareGroupedContract(const plan::GroupedContract &c, const CpuContext &context) {
  CLEAVE_ASSIGN_OR_RETURN(Indices groups,
                          indicesOf(c.group_of_row(), c.start(), c.groups(), c.global_groups(), context));
  if (c.lhs().dtype() == plan::F64) return Prepared(std::make_unique<GroupedProduct<double>>(c, context, groups));
  if (isFloat(c.lhs().dtype())) return Prepared(std::make_unique<GroupedProduct<float>>(c, context, groups));
  return inputError(fmt::format("no grouped product of {}", name(c.lhs().dtype())));
}

} // namespace cleave::runtime
