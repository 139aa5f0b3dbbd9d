// Contractions: oneDNN's matmul over strided operands, plain loops for types it does not have. Where the CPU has no
// products of such elements (8 bits, fp16 nearly everywhere) operands are widened to f32 around an f32 product
// (widen.h).
#include "runtime/base/threads/parallel.h"
#include "runtime/engine/device/contract_batch.h"
#include "runtime/engine/device/cpu/commands.h"
#include "runtime/engine/device/cpu/widen.h"
#include "runtime/plan/dtype.h"
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

using Dims = dnnl::memory::dims;

// A contraction with its batch dimensions folded as far as the strides allow.
struct Problem {
  std::vector<ContractBatch> batch;
  int64_t m, n, k;
  int64_t lhsM, lhsK, rhsK, rhsN, outM, outN;
  bool swapped = false; // the command's rhs is this problem's lhs

  explicit Problem(const plan::Contract &c) : batch(batchOf(c)), m(c.m()), n(c.n()), k(c.k()) {
    int rank = c.batch_size();
    lhsM = c.lhs_strides(rank), lhsK = c.lhs_strides(rank + 1);
    rhsK = c.rhs_strides(rank), rhsN = c.rhs_strides(rank + 1);
    outM = c.out_strides(rank), outN = c.out_strides(rank + 1);
    // A batch dimension that one operand lacks is rows (columns) of one larger product when the strides run on.
    if (outN != 1 && outM == 1 && n != 1 && !c.has_bias()) transpose(); // oneDNN wants rows of the result contiguous
    while (!batch.empty()) {
      ContractBatch last = batch.back();
      if (last.rhs == 0 && (m == 1 || (last.lhs == lhsM * m && last.out == outM * m))) {
        if (m == 1) lhsM = last.lhs, outM = last.out;
        m *= last.size;
      } else if (last.lhs == 0 && !c.has_bias() && (n == 1 || (last.rhs == rhsN * n && last.out == outN * n))) {
        if (n == 1) rhsN = last.rhs, outN = last.out;
        n *= last.size;
      } else
        break;
      batch.pop_back();
    }
  }
  // out^T = rhs^T lhs^T
  void transpose() {
    std::swap(m, n), std::swap(lhsM, rhsN), std::swap(lhsK, rhsK), std::swap(outM, outN);
    for (ContractBatch &dim : batch) std::swap(dim.lhs, dim.rhs);
    swapped = true;
  }
  int64_t batchCount() const {
    int64_t count = 1;
    for (const ContractBatch &dim : batch) count *= dim.size;
    return count;
  }
};

// Plain loops in a fixed order; Sum is the accumulator.
template <typename Element, typename Sum> Prepared loops(const plan::Contract &c, const CpuContext &context) {
  Problem p(c);
  auto *lhs = reinterpret_cast<const Element *>(context.at(p.swapped ? c.rhs() : c.lhs()));
  auto *rhs = reinterpret_cast<const Element *>(context.at(p.swapped ? c.lhs() : c.rhs()));
  auto *out = reinterpret_cast<Element *>(context.at(c.out()));
  auto *bias = c.has_bias() ? reinterpret_cast<const Element *>(context.at(c.bias())) : nullptr;
  bool accumulate = c.accumulate();
  return prepared([=] {
    parallelFor(p.batchCount() * p.m, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t rest = row / p.m, i = row % p.m, l = i * p.lhsM, r = 0, o = i * p.outM;
        for (size_t d = p.batch.size(); d-- > 0; rest /= p.batch[d].size) {
          int64_t at = rest % p.batch[d].size;
          l += at * p.batch[d].lhs, r += at * p.batch[d].rhs, o += at * p.batch[d].out;
        }
        for (int64_t j = 0; j < p.n; ++j) {
          Sum sum = 0;
          for (int64_t x = 0; x < p.k; ++x)
            sum += static_cast<Sum>(lhs[l + x * p.lhsK]) * static_cast<Sum>(rhs[r + x * p.rhsK + j * p.rhsN]);
          if (bias) sum += static_cast<Sum>(bias[j]);
          Element &target = out[o + j * p.outN];
          target = static_cast<Element>(accumulate ? static_cast<Sum>(target) + sum : sum);
        }
      }
    });
    return Status::ok();
  });
}

// A stride of a size-1 dimension says nothing; oneDNN wants one that holds what is inside.
int64_t strideOf(int64_t size, int64_t stride, int64_t otherwise) {
  return size == 1 || stride == 0 ? otherwise : stride;
}

dnnl::memory::desc matrix(const std::vector<int64_t> &batchSizes, const std::vector<int64_t> &batchStrides,
                          int64_t rows, int64_t columns, int64_t rowStride, int64_t columnStride,
                          dnnl::memory::data_type type) {
  Dims dims(batchSizes.begin(), batchSizes.end()), strides(batchStrides.begin(), batchStrides.end());
  // A single row (column): as if dense along the other dimension.
  if (rows == 1) rowStride = columnStride * columns;
  if (columns == 1) columnStride = rowStride == 1 ? rows : 1;
  if (rows == 1 && columns == 1) rowStride = columnStride = 1;
  int64_t extent = std::max(rowStride * rows, columnStride * columns);
  for (size_t d = dims.size(); d-- > 0;) {
    strides[d] = strideOf(dims[d], strides[d], extent);
    extent = std::max(extent, strides[d] * dims[d]);
  }
  dims.insert(dims.end(), {rows, columns});
  strides.insert(strides.end(), {rowStride, columnStride});
  return {dims, type, strides};
}

bool is(const dnnl::matmul::primitive_desc &desc, const char *implementation) {
  return std::string(desc.impl_info_str()).find(implementation) != std::string::npos;
}

// The gradient of large weights from few samples: what takes the time is to write it. oneDNN's first choice, blocks of
// the result by vectors of k, writes at 4 GB/s a thread, its older product at 11 (4096 x 2048, k = 8 to 32; from 48 on
// they take as long).
bool isMostlyWriting(const Problem &p) { return p.batch.empty() && p.k <= 32 && p.m * p.n >= int64_t(1) << 20; }

// Where a product finds an operand: in the arena, or widened in the scratch.
struct Place {
  plan::DType dtype;
  std::byte *address = nullptr; // null: at `scratch`
  size_t scratch = 0;

  void bind(BoundPrimitive &call, int argument, const dnnl::memory::desc &desc, int64_t element) const {
    int64_t offset = element * byteSize(dtype);
    if (address)
      call.bind(argument, desc, address + offset);
    else
      call.bindScratch(argument, desc, scratch + static_cast<size_t>(offset));
  }
};
struct Places {
  Place lhs, rhs, out;
  size_t scratchBytes = 0; // taken by them
};

Places inArena(const plan::Contract &c, const CpuContext &context, const Problem &p) {
  const plan::Buffer &left = p.swapped ? c.rhs() : c.lhs(), &right = p.swapped ? c.lhs() : c.rhs();
  return {{left.dtype(), context.at(left)}, {right.dtype(), context.at(right)}, {c.out().dtype(), context.at(c.out())}};
}

// Sequence before samples: rows of all of the batch lie between two rows of one. oneDNN has fast code for that where a
// dimension of one stands before the batch.
bool wantsLifting(const Problem &p, size_t inside) {
  if (inside != 1) return false;
  const ContractBatch &b = p.batch.back();
  auto lieBetween = [](int64_t batch, int64_t rows, int64_t columns) {
    return batch > 0 && batch < std::max(rows, columns);
  };
  return lieBetween(b.lhs, p.lhsM, p.lhsK) || lieBetween(b.rhs, p.rhsK, p.rhsN) || lieBetween(b.out, p.outM, p.outN);
}

// The three matrices over batch dimensions from `outside` on. Lifted: with a dimension of one before them.
struct Matrices {
  dnnl::memory::desc lhs, rhs, out;

  Matrices(const Problem &p, size_t outside, const Places &places, bool isLifted = false) {
    std::vector<int64_t> sizes[3], strides[3];
    for (size_t d = outside; d < p.batch.size(); ++d) {
      const ContractBatch &b = p.batch[d];
      sizes[0].push_back(b.lhs == 0 ? 1 : b.size), sizes[1].push_back(b.rhs == 0 ? 1 : b.size),
          sizes[2].push_back(b.size);
      strides[0].push_back(b.lhs), strides[1].push_back(b.rhs), strides[2].push_back(b.out);
    }
    if (isLifted)
      for (int i = 0; i < 3; ++i) sizes[i].insert(sizes[i].begin(), 1), strides[i].insert(strides[i].begin(), 0);
    lhs = matrix(sizes[0], strides[0], p.m, p.k, p.lhsM, p.lhsK, dnnlType(places.lhs.dtype));
    rhs = matrix(sizes[1], strides[1], p.k, p.n, p.rhsK, p.rhsN, dnnlType(places.rhs.dtype));
    out = matrix(sizes[2], strides[2], p.m, p.n, p.outM, p.outN, dnnlType(places.out.dtype));
  }
};

using Sequence = std::unique_ptr<PrimitiveSequence>;

// Creates the primitive over the last `inside` batch dimensions; null when oneDNN has only its reference loops for it.
Sequence matmul(const plan::Contract &c, const CpuContext &context, const Problem &p, const Places &places,
                size_t inside, bool allowReference) {
  size_t outside = p.batch.size() - inside;
  auto [lhs, rhs, out] = Matrices(p, outside, places, wantsLifting(p, inside));
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (c.accumulate()) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  dnnl::memory::desc bias;
  if (c.has_bias()) {
    Dims ones(size_t(out.get_ndims()) - 1, 1);
    ones.push_back(p.n);
    Dims biasStrides(size_t(out.get_ndims()) - 1, p.n);
    biasStrides.push_back(1);
    bias = {ones, dnnlType(c.bias().dtype()), biasStrides};
  }
  auto made = [&] {
    return c.has_bias() ? dnnl::matmul::primitive_desc(cpuEngine(), lhs, rhs, bias, out, attributes, true)
                        : dnnl::matmul::primitive_desc(cpuEngine(), lhs, rhs, out, attributes, true);
  };
  auto desc = made();
  if (!desc) return {};
  if (isMostlyWriting(p)) {
    while (!is(desc, "gemm:jit") && desc.next_impl()) {
    }
    if (!is(desc, "gemm:jit")) desc = made();
  }
  while (is(desc, "ref") && desc.next_impl()) {
  }
  if (is(desc, "ref") && !allowReference) return {};
  dnnl::matmul primitive(desc);
  context.scratch->need(places.scratchBytes + desc.scratchpad_desc().get_size());
  // One oneDNN matmul over the trailing batch dimensions, executed once for every index of those before.
  auto command = std::make_unique<PrimitiveSequence>(context.stream);
  int64_t calls = 1;
  for (size_t d = 0; d < outside; ++d) calls *= p.batch[d].size;
  for (int64_t call = 0; call < calls; ++call) {
    int64_t rest = call, l = 0, r = 0, o = 0;
    for (size_t d = outside; d-- > 0; rest /= p.batch[d].size) {
      int64_t at = rest % p.batch[d].size;
      l += at * p.batch[d].lhs, r += at * p.batch[d].rhs, o += at * p.batch[d].out;
    }
    BoundPrimitive bound(primitive);
    places.lhs.bind(bound, DNNL_ARG_SRC, lhs, l);
    places.rhs.bind(bound, DNNL_ARG_WEIGHTS, rhs, r);
    places.out.bind(bound, DNNL_ARG_DST, out, o);
    if (c.has_bias()) bound.bind(DNNL_ARG_BIAS, bias, context.at(c.bias()));
    bound.bindScratch(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc(), places.scratchBytes);
    command->calls.push_back(std::move(bound));
  }
  return command;
}

// The most batch dimensions in one primitive that oneDNN has fast code for; the rest become separate executions.
Sequence fastMatmul(const plan::Contract &c, const CpuContext &context, const Problem &p, const Places &places) {
  for (size_t inside = p.batch.size() + 1; inside-- > 0;)
    if (Sequence command = matmul(c, context, p, places, inside, false)) return command;
  return {};
}

// Operands of 16 or 8 bits copied to dense f32 in the order in which they lie, multiplied there, the result rounded.
// Null: oneDNN lacks the product.
std::unique_ptr<ScratchSequence> widenedMatmul(const plan::Contract &c, const CpuContext &context, const Problem &p) {
  if (c.has_bias()) return {};
  Places from = inArena(c, context, p), wide;
  Problem dense = p;
  // Strides of the dense copies, the last batch dimension first; operands that stay where they are keep theirs.
  const bool copied[3] = {from.lhs.dtype != plan::F32, from.rhs.dtype != plan::F32, from.out.dtype != plan::F32};
  auto pack = [](int64_t &rowStride, int64_t rows, int64_t &columnStride, int64_t columns) {
    const bool isTransposed = columnStride != 1 && rowStride == 1;
    rowStride = isTransposed ? 1 : columns, columnStride = isTransposed ? rows : 1;
  };
  if (copied[0]) pack(dense.lhsM, p.m, dense.lhsK, p.k);
  if (copied[1]) pack(dense.rhsK, p.k, dense.rhsN, p.n);
  if (copied[2]) pack(dense.outM, p.m, dense.outN, p.n);
  int64_t elements[3] = {p.m * p.k, p.k * p.n, p.m * p.n};
  for (size_t d = dense.batch.size(); d-- > 0;) {
    ContractBatch &b = dense.batch[d];
    int64_t *strides[3] = {&b.lhs, &b.rhs, &b.out};
    for (int i = 0; i < 3; ++i)
      if (copied[i] && *strides[i] != 0) *strides[i] = elements[i], elements[i] *= b.size;
  }
  auto take = [&](const Place &narrow, int64_t count) {
    if (narrow.dtype == plan::F32) return narrow;
    size_t at = wide.scratchBytes;
    wide.scratchBytes += (static_cast<size_t>(count) * sizeof(float) + 63) / 64 * 64;
    return Place{plan::F32, nullptr, at};
  };
  wide.lhs = take(from.lhs, elements[0]), wide.rhs = take(from.rhs, elements[1]),
  wide.out = take(from.out, elements[2]);
  Sequence product = fastMatmul(c, context, dense, wide);
  if (!product) product = matmul(c, context, dense, wide, dense.batch.size(), true);
  if (!product) return {};

  auto whole = std::make_unique<ScratchSequence>();
  auto convert = [&](Conversion::Direction direction, const Place &narrow, const Place &copy, int64_t rows,
                     int64_t columns, auto stridesOf) {
    if (narrow.dtype == plan::F32) return;
    std::vector<int64_t> sizes, strides, wideStrides;
    for (size_t d = 0; d < p.batch.size(); ++d) {
      sizes.push_back(p.batch[d].size);
      strides.push_back(stridesOf(p, d)), wideStrides.push_back(stridesOf(dense, d));
    }
    sizes.insert(sizes.end(), {rows, columns});
    for (size_t d = p.batch.size(); d < sizes.size(); ++d)
      strides.push_back(stridesOf(p, d)), wideStrides.push_back(stridesOf(dense, d));
    whole->parts.push_back(std::make_unique<Conversion>(narrow.dtype, direction, narrow.address, copy.scratch, sizes,
                                                        strides, wideStrides));
  };
  // Strides of a batch dimension, then of rows and columns.
  auto lhs = [](const Problem &q, size_t d) {
    return d < q.batch.size() ? q.batch[d].lhs : d == q.batch.size() ? q.lhsM : q.lhsK;
  };
  auto rhs = [](const Problem &q, size_t d) {
    return d < q.batch.size() ? q.batch[d].rhs : d == q.batch.size() ? q.rhsK : q.rhsN;
  };
  auto out = [](const Problem &q, size_t d) {
    return d < q.batch.size() ? q.batch[d].out : d == q.batch.size() ? q.outM : q.outN;
  };
  convert(Conversion::Widen, from.lhs, wide.lhs, p.m, p.k, lhs);
  convert(Conversion::Widen, from.rhs, wide.rhs, p.k, p.n, rhs);
  if (c.accumulate()) convert(Conversion::Widen, from.out, wide.out, p.m, p.n, out);
  whole->parts.push_back(std::move(product));
  convert(Conversion::Narrow, from.out, wide.out, p.m, p.n, out);
  return whole;
}

} // namespace

Result<Prepared> prepareContract(const plan::Contract &c, const CpuContext &context) {
  if (hasEpilogue(c)) {
    plan::Contract bare = c;
    bare.clear_bias(), bare.clear_activation();
    bare.clear_pre_activation(), bare.clear_lhs_sum(), bare.clear_rhs_sum();
    Result<Prepared> product = prepareContract(bare, context);
    if (!product) return product;
    return withEpilogue(c, context, std::move(*product));
  }
  Problem p(c);
  if (p.batchCount() == 0 || p.m == 0 || p.n == 0) return prepared([] { return Status::ok(); });
  plan::DType type = c.out().dtype();
  bool same = c.lhs().dtype() == type && c.rhs().dtype() == type && (!c.has_bias() || c.bias().dtype() == type);
  if (same && type == plan::F64) return loops<double, double>(c, context);
  if (same && type == plan::I64) return loops<int64_t, int64_t>(c, context);
  if (same && type == plan::I32) return loops<int32_t, int64_t>(c, context);
  if (same && type == plan::F32 && p.k == 0) return loops<float, float>(c, context);
  if (!isFloat(type) || !isFloat(c.lhs().dtype()) || !isFloat(c.rhs().dtype()) || c.lhs().dtype() == plan::F64 ||
      c.rhs().dtype() == plan::F64)
    return inputError(
        fmt::format("no contraction of {} and {} into {}", name(c.lhs().dtype()), name(c.rhs().dtype()), name(type)));
  Places places = inArena(c, context, p);
  if (!multipliesNatively(c.lhs().dtype()) || !multipliesNatively(c.rhs().dtype()))
    if (auto command = widenedMatmul(c, context, p)) return Prepared(std::move(command));
  if (isFp8BitFloat(c.lhs().dtype()) || isFp8BitFloat(c.rhs().dtype()))
    return inputError("oneDNN has no matmul for these strides");
  if (Sequence command = fastMatmul(c, context, p, places)) return Prepared(std::move(command));
  if (same && type == plan::F32) return loops<float, float>(c, context);
  if (auto command = widenedMatmul(c, context, p)) return Prepared(std::move(command));
  if (Sequence command = matmul(c, context, p, places, p.batch.size(), true)) return Prepared(std::move(command));
  return inputError("oneDNN has no matmul for these strides");
}

} // namespace cleave::runtime
