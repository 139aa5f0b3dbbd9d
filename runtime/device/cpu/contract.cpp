// Contractions: oneDNN's matmul over strided operands, plain loops for types it does not have.
#include "runtime/device/cpu/commands.h"
#include "runtime/device/parallel.h"
#include "runtime/plan/dtype.h"
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

using Dims = dnnl::memory::dims;

// A contraction with its batch dimensions folded as far as the strides allow.
struct Problem {
  struct Batch {
    int64_t size, lhs, rhs, out;
  };
  std::vector<Batch> batch;
  int64_t m, n, k;
  int64_t lhsM, lhsK, rhsK, rhsN, outM, outN;
  bool swapped = false; // the command's rhs is this problem's lhs

  explicit Problem(const plan::Contract &c) : m(c.m()), n(c.n()), k(c.k()) {
    int rank = c.batch_size();
    lhsM = c.lhs_strides(rank), lhsK = c.lhs_strides(rank + 1);
    rhsK = c.rhs_strides(rank), rhsN = c.rhs_strides(rank + 1);
    outM = c.out_strides(rank), outN = c.out_strides(rank + 1);
    for (int i = 0; i < rank; ++i) {
      Batch dim{c.batch(i), c.lhs_strides(i), c.rhs_strides(i), c.out_strides(i)};
      if (dim.size == 1) continue;
      if (!batch.empty()) { // runs on from the dimension before it?
        Batch &last = batch.back();
        if (last.lhs == dim.lhs * dim.size && last.rhs == dim.rhs * dim.size && last.out == dim.out * dim.size) {
          last = {last.size * dim.size, dim.lhs, dim.rhs, dim.out};
          continue;
        }
      }
      batch.push_back(dim);
    }
    // A batch dimension that one operand lacks is rows (columns) of one larger product when the strides run on.
    if (outN != 1 && outM == 1 && n != 1 && !c.has_bias()) transpose(); // oneDNN wants rows of the result contiguous
    while (!batch.empty()) {
      Batch last = batch.back();
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
    for (Batch &dim : batch) std::swap(dim.lhs, dim.rhs);
    swapped = true;
  }
  int64_t batchCount() const {
    int64_t count = 1;
    for (const Batch &dim : batch) count *= dim.size;
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

// A stride of a size-1 dimension says nothing; oneDNN wants a consistent one.
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
  for (size_t d = 0; d < dims.size(); ++d)
    strides[d] = strideOf(dims[d], strides[d], std::max(rowStride * rows, columnStride * columns));
  dims.insert(dims.end(), {rows, columns});
  strides.insert(strides.end(), {rowStride, columnStride});
  return {dims, type, strides};
}

bool isReference(const dnnl::matmul::primitive_desc &desc) {
  return std::string(desc.impl_info_str()).find("ref") != std::string::npos;
}

// Creates the primitive over the last `inside` batch dimensions; null when oneDNN has only its reference loops for it.
Result<Prepared> matmul(const plan::Contract &c, const CpuContext &context, const Problem &p, size_t inside,
                        bool allowReference) {
  const plan::Buffer &left = p.swapped ? c.rhs() : c.lhs(), &right = p.swapped ? c.lhs() : c.rhs();
  std::vector<int64_t> sizes[3], strides[3];
  size_t outside = p.batch.size() - inside;
  for (size_t d = outside; d < p.batch.size(); ++d) {
    const Problem::Batch &b = p.batch[d];
    sizes[0].push_back(b.lhs == 0 ? 1 : b.size), sizes[1].push_back(b.rhs == 0 ? 1 : b.size),
        sizes[2].push_back(b.size);
    strides[0].push_back(b.lhs), strides[1].push_back(b.rhs), strides[2].push_back(b.out);
  }
  auto lhs = matrix(sizes[0], strides[0], p.m, p.k, p.lhsM, p.lhsK, dnnlType(left.dtype()));
  auto rhs = matrix(sizes[1], strides[1], p.k, p.n, p.rhsK, p.rhsN, dnnlType(right.dtype()));
  auto out = matrix(sizes[2], strides[2], p.m, p.n, p.outM, p.outN, dnnlType(c.out().dtype()));
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (c.accumulate()) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  dnnl::memory::desc bias;
  if (c.has_bias()) {
    Dims ones(inside + 1, 1);
    ones.push_back(p.n);
    Dims biasStrides(inside + 1, p.n);
    biasStrides.push_back(1);
    bias = {ones, dnnlType(c.bias().dtype()), biasStrides};
  }
  auto desc = c.has_bias() ? dnnl::matmul::primitive_desc(cpuEngine(), lhs, rhs, bias, out, attributes, true)
                           : dnnl::matmul::primitive_desc(cpuEngine(), lhs, rhs, out, attributes, true);
  if (!desc)
    return allowReference ? Result<Prepared>(inputError("oneDNN has no matmul for these strides"))
                          : Result<Prepared>(Prepared());
  while (isReference(desc) && desc.next_impl()) {
  }
  if (isReference(desc) && !allowReference) return Prepared();
  dnnl::matmul primitive(desc);
  context.scratch->need(desc.scratchpad_desc().get_size());
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
    int64_t size = byteSize(left.dtype()), rhsSize = byteSize(right.dtype()), outSize = byteSize(c.out().dtype());
    bound.bind(DNNL_ARG_SRC, lhs, context.at(left) + l * size);
    bound.bind(DNNL_ARG_WEIGHTS, rhs, context.at(right) + r * rhsSize);
    bound.bind(DNNL_ARG_DST, out, context.at(c.out()) + o * outSize);
    if (c.has_bias()) bound.bind(DNNL_ARG_BIAS, bias, context.at(c.bias()));
    bound.bindScratch(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc(), 0);
    command->calls.push_back(std::move(bound));
  }
  return Prepared(std::move(command));
}

} // namespace

Result<Prepared> prepareContract(const plan::Contract &c, const CpuContext &context) {
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
  // The most batch dimensions in one primitive that oneDNN has fast code for; the rest become separate executions.
  for (size_t inside = p.batch.size() + 1; inside-- > 0;) {
    Result<Prepared> command = matmul(c, context, p, inside, false);
    if (!command || *command) return command;
  }
  if (same && type == plan::F32) return loops<float, float>(c, context);
  return matmul(c, context, p, p.batch.size(), true);
}

} // namespace cleave::runtime
