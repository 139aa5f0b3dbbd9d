// Operators that move elements: they copy bytes and know nothing of element types, except ScatterAdd and CumSum.
#include "runtime/check/reference/evaluation.h"
#include <algorithm>
#include <cstring>

namespace cleave::runtime {

namespace {

// visit(row) for rows of so many bytes, on all threads.
template <typename Visit> void forEachRow(int64_t rows, int64_t bytes, Visit visit) {
  parallelFor(rows, std::max<int64_t>(1, elementsAtATime / std::max<int64_t>(1, bytes)),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) visit(i);
              });
}

template <typename Element> void copyRow(const std::byte *source, int64_t step, int64_t count, std::byte *target) {
  const auto *from = reinterpret_cast<const Element *>(source);
  auto *to = reinterpret_cast<Element *>(target);
  for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
}

} // namespace

void copyStrided(const std::byte *source, int64_t offset, const Ints &strides, const Ints &sizes, int64_t bytes,
                 std::byte *target) {
  if (elementCount(sizes) == 0) return;
  const size_t outer = sizes.empty() ? 0 : sizes.size() - 1;
  const int64_t row = sizes.empty() ? 1 : sizes.back(), step = sizes.empty() ? 1 : strides.back();
  auto copy = bytes == 8   ? copyRow<uint64_t>
              : bytes == 4 ? copyRow<uint32_t>
              : bytes == 2 ? copyRow<uint16_t>
                           : copyRow<uint8_t>;
  parallelFor(elementCount(sizes) / row, std::max<int64_t>(1, elementsAtATime / row), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t from = offset, left = i;
      for (size_t d = outer; d-- > 0; left /= sizes[d]) from += left % sizes[d] * strides[d];
      copy(source + from * bytes, step, row, target + i * row * bytes);
    }
  });
}

namespace {

// Movement keeps values: the operand in the result's element type (F32 becomes F64 under Precision::Double).
AsType operandAsResult(const Evaluation &e, size_t i) { return {e.operand(i), e.type.dtype}; }

HostTensor reshape(const Evaluation &e) {
  HostTensor x = e.operand(0).converted(e.type.dtype);
  e.check(x.elements() == elementCount(e.type.shape), "changes the number of elements");
  x.shape = e.type.shape;
  return x;
}

HostTensor transpose(const Evaluation &e) {
  const AsType operand = operandAsResult(e, 0);
  const HostTensor &x = *operand;
  const Ints &perm = e.ints("perm");
  e.check(perm.size() == x.shape.size(), "needs a perm entry for each dimension");
  Ints strides = rowMajorStrides(x.shape), picked, shape;
  for (int64_t d : perm) {
    e.check(d >= 0 && d < int64_t(strides.size()), "has a perm entry out of range");
    picked.push_back(strides[d]);
    shape.push_back(x.shape[d]);
  }
  HostTensor result = HostTensor::unset(x.dtype, shape);
  copyStrided(x.data.data(), 0, picked, shape, byteSize(x.dtype), result.data.data());
  return result;
}

HostTensor broadcast(const Evaluation &e) {
  const AsType operand = operandAsResult(e, 0);
  const HostTensor &x = *operand;
  const Ints &dims = e.ints("dims"), &shape = e.ints("shape");
  e.check(dims.size() == x.shape.size(), "needs a dims entry for each dimension of x");
  Ints strides = rowMajorStrides(x.shape), spread(shape.size(), 0);
  for (size_t d = 0; d < dims.size(); ++d) {
    e.check(dims[d] >= 0 && dims[d] < int64_t(shape.size()) && shape[dims[d]] == x.shape[d],
            "has dims that do not fit");
    spread[dims[d]] = strides[d];
  }
  HostTensor result = HostTensor::unset(x.dtype, shape);
  copyStrided(x.data.data(), 0, spread, shape, byteSize(x.dtype), result.data.data());
  return result;
}

HostTensor slice(const Evaluation &e) {
  const AsType operand = operandAsResult(e, 0);
  const HostTensor &x = *operand;
  const Ints &starts = e.ints("starts"), &sizes = e.ints("sizes"), &steps = e.ints("steps");
  size_t rank = x.shape.size();
  e.check(starts.size() == rank && sizes.size() == rank && steps.size() == rank, "needs an entry for each dimension");
  Ints strides = rowMajorStrides(x.shape);
  int64_t offset = 0;
  for (size_t d = 0; d < rank; ++d) {
    e.check(steps[d] > 0 && starts[d] >= 0 && (sizes[d] == 0 || starts[d] + (sizes[d] - 1) * steps[d] < x.shape[d]),
            "reads outside its operand");
    offset += starts[d] * strides[d];
    strides[d] *= steps[d];
  }
  HostTensor result = HostTensor::unset(x.dtype, sizes);
  copyStrided(x.data.data(), offset, strides, sizes, byteSize(x.dtype), result.data.data());
  return result;
}

HostTensor roll(const Evaluation &e) {
  const AsType operand = operandAsResult(e, 0);
  const HostTensor &x = *operand;
  int64_t dim = e.integer("dim"), distance = e.integer("distance");
  e.check(dim >= 0 && dim < int64_t(x.shape.size()), "has no such dimension");
  int64_t size = x.shape[dim], inner = byteSize(x.dtype);
  for (size_t d = dim + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  HostTensor result = HostTensor::unset(x.dtype, x.shape);
  if (inner == 0 || size == 0) return result;
  forEachRow(int64_t(x.data.size()) / inner, inner, [&](int64_t row) {
    int64_t from = row % size, to = ((from + distance) % size + size) % size;
    std::memcpy(&result.data[(row - from + to) * inner], &x.data[row * inner], inner);
  });
  return result;
}

HostTensor pad(const Evaluation &e) {
  const AsType operand = operandAsResult(e, 0);
  const HostTensor &x = *operand;
  const Ints &low = e.ints("low"), &high = e.ints("high"), &interior = e.ints("interior");
  size_t rank = x.shape.size();
  e.check(low.size() == rank && high.size() == rank && interior.size() == rank, "needs an entry for each dimension");
  Ints shape;
  for (size_t d = 0; d < rank; ++d)
    shape.push_back(low[d] + high[d] + x.shape[d] + std::max<int64_t>(x.shape[d] - 1, 0) * interior[d]);
  HostTensor value = HostTensor::ofReals(x.dtype, {}, {e.real("value")}), result = HostTensor::unset(x.dtype, shape);
  int64_t bytes = byteSize(x.dtype);
  forEachElement(result.elements(), [&](int64_t i) { std::memcpy(&result.data[i * bytes], value.data.data(), bytes); });
  const Ints strides = rowMajorStrides(shape), own = rowMajorStrides(x.shape);
  forEachElement(x.elements(), [&](int64_t i) {
    int64_t to = 0;
    for (size_t d = 0; d < rank; ++d) to += (low[d] + i / own[d] % x.shape[d] * (1 + interior[d])) * strides[d];
    std::memcpy(&result.data[to * bytes], &x.data[i * bytes], bytes);
  });
  return result;
}

// The elements before, at and after `axis`.
struct AxisView {
  int64_t outer = 1, size = 1, inner = 1;
};
AxisView viewAxis(const Evaluation &e, const Ints &shape, int64_t axis) {
  e.check(axis >= 0 && axis < int64_t(shape.size()), "has an axis out of range");
  AxisView view;
  for (int64_t d = 0; d < axis; ++d) view.outer *= shape[d];
  view.size = shape[axis];
  for (size_t d = axis + 1; d < shape.size(); ++d) view.inner *= shape[d];
  return view;
}

HostTensor concat(const Evaluation &e) {
  int64_t axis = e.integer("axis");
  AxisView whole = viewAxis(e, e.type.shape, axis);
  HostTensor result = HostTensor::unset(e.type.dtype, e.type.shape);
  int64_t bytes = byteSize(e.type.dtype) * whole.inner, start = 0;
  for (size_t i = 0; i < e.operands.size(); ++i) {
    const AsType operand = operandAsResult(e, i);
    const HostTensor &part = *operand;
    AxisView view = viewAxis(e, part.shape, axis);
    e.check(view.outer == whole.outer && view.inner == whole.inner && start + view.size <= whole.size,
            "has operands that do not fit together");
    forEachRow(view.outer, view.size * bytes, [&](int64_t o) {
      std::copy_n(part.data.begin() + o * view.size * bytes, view.size * bytes,
                  result.data.begin() + (o * whole.size + start) * bytes);
    });
    start += view.size;
  }
  e.check(start == whole.size, "has operands that do not fill the result");
  return result;
}

int64_t row(const Evaluation &e, int64_t index, int64_t rows) {
  if (index < 0) index += rows;
  e.check(index >= 0 && index < rows,
          "has the index " + std::to_string(index) + " outside " + std::to_string(rows) + " rows");
  return index;
}

// The indices of one entry of the leading dimensions that a table and its indices share.
struct BatchedIndices {
  int64_t dims, each, outerOfEach; // shared dimensions; indices of an entry; of its outer entries
  std::span<const int64_t> of(const std::vector<int64_t> &indices, int64_t outer) const {
    return std::span(indices).subspan(size_t(outer / outerOfEach * each), size_t(each));
  }
};
BatchedIndices batchedIndices(const Evaluation &e, const HostTensor &indices, const AxisView &view) {
  int64_t dims = e.attributes.count("batch_dims") ? e.integer("batch_dims") : 0, entries = 1;
  e.check(dims >= 0 && dims <= int64_t(indices.shape.size()), "has batch_dims that do not fit its indices");
  for (int64_t d = 0; d < dims; ++d) entries *= indices.shape[size_t(d)];
  if (entries == 0) return {dims, 0, 1};
  return {dims, indices.elements() / entries, std::max<int64_t>(1, view.outer / entries)};
}

HostTensor gather(const Evaluation &e) {
  const AsType operand = operandAsResult(e, 0);
  const HostTensor &table = *operand;
  std::vector<int64_t> indices = e.operand(1).integers();
  int64_t axis = e.integer("axis");
  AxisView view = viewAxis(e, table.shape, axis);
  const BatchedIndices batched = batchedIndices(e, e.operand(1), view);
  Ints shape(table.shape.begin(), table.shape.begin() + axis);
  shape.insert(shape.end(), e.operand(1).shape.begin() + batched.dims, e.operand(1).shape.end());
  shape.insert(shape.end(), table.shape.begin() + axis + 1, table.shape.end());
  HostTensor result = HostTensor::unset(table.dtype, shape);
  int64_t bytes = byteSize(table.dtype) * view.inner;
  auto *target = result.data.begin();
  for (int64_t o = 0; o < view.outer; ++o)
    for (int64_t index : batched.of(indices, o)) {
      std::copy_n(table.data.begin() + (o * view.size + row(e, index, view.size)) * bytes, bytes, target);
      target += bytes;
    }
  return result;
}

HostTensor scatterAdd(const Evaluation &e) {
  std::vector<int64_t> indices = e.operand(0).integers();
  const HostTensor &updates = e.operand(1);
  AxisView view = viewAxis(e, e.type.shape, e.integer("axis"));
  e.check(e.integer("rows") == view.size, "has rows that differ from its result");
  const BatchedIndices batched = batchedIndices(e, e.operand(0), view);
  e.check(updates.elements() == view.outer * batched.each * view.inner, "has updates of the wrong shape");
  Reals values(updates);
  RealResult result(e.type, 0);
  double *out = result.data();
  int64_t from = 0;
  for (int64_t o = 0; o < view.outer; ++o)
    for (int64_t index : batched.of(indices, o)) {
      double *to = out + (o * view.size + row(e, index, view.size)) * view.inner;
      for (int64_t i = 0; i < view.inner; ++i) to[i] += values[from++];
    }
  return result.finish();
}

template <typename Wide>
std::vector<Wide> runningSum(const Wide *x, const AxisView &view, bool exclusive, bool reverse) {
  std::vector<Wide> y(view.outer * view.size * view.inner);
  for (int64_t o = 0; o < view.outer; ++o)
    for (int64_t i = 0; i < view.inner; ++i) {
      Wide total = 0;
      for (int64_t s = 0; s < view.size; ++s) {
        int64_t at = (o * view.size + (reverse ? view.size - 1 - s : s)) * view.inner + i;
        if (exclusive) y[at] = total;
        total += x[at];
        if (!exclusive) y[at] = total;
      }
    }
  return y;
}

HostTensor cumSum(const Evaluation &e) {
  const HostTensor &x = e.operand(0);
  AxisView view = viewAxis(e, x.shape, e.integer("axis"));
  bool exclusive = e.flag("exclusive"), reverse = e.flag("reverse");
  if (isFloat(x.dtype))
    return HostTensor::ofReals(e.type.dtype, x.shape, runningSum(Reals(x).data(), view, exclusive, reverse));
  return HostTensor::ofIntegers(e.type.dtype, x.shape, runningSum(x.integers().data(), view, exclusive, reverse));
}

} // namespace

void addMovement(EvaluatorTable &table) {
  table["Reshape"] = reshape;
  table["Transpose"] = transpose;
  table["Roll"] = roll;
  table["Broadcast"] = broadcast;
  table["Slice"] = slice;
  table["Pad"] = pad;
  table["Concat"] = concat;
  table["Gather"] = gather;
  table["ScatterAdd"] = scatterAdd;
  table["CumSum"] = cumSum;
}

} // namespace cleave::runtime
