// A tensor in host memory: what the reference evaluator reads and makes.
//
//   HostTensor t = HostTensor::ofReals(plan::F32, {2, 2}, {1, 2, 3, 4});
//   t.reals()    -> 1.0 2.0 3.0 4.0        t.integers() -> 1 2 3 4 (truncated)
//
// Elements are row-major and dense; BOOL is one byte, 0 or 1.
#pragma once
#include "runtime/base/boxes.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/check/reference/buffer.h"
#include "runtime/plan/dtype.h"
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace cleave::runtime {
using plan::DType;

// Elements that one thread takes at a time.
constexpr int64_t elementsAtATime = 16384;
// visit(i) for i of [0, count) on all threads.
template <typename Visit> void forEachElement(int64_t count, Visit visit) {
  parallelFor(count, elementsAtATime, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) visit(i);
  });
}

struct TensorType {
  DType dtype = plan::DTYPE_INVALID;
  std::vector<int64_t> shape;
  bool operator==(const TensorType &) const = default;
};

struct HostTensor {
  DType dtype = plan::DTYPE_INVALID;
  std::vector<int64_t> shape;
  Buffer data;

  // Elements that are yet to be written.
  static HostTensor unset(DType dtype, std::vector<int64_t> shape);
  static HostTensor zeros(DType dtype, std::vector<int64_t> shape);
  static HostTensor ofReals(DType dtype, std::vector<int64_t> shape, const std::vector<double> &values);
  static HostTensor ofIntegers(DType dtype, std::vector<int64_t> shape, const std::vector<int64_t> &values);

  int64_t elements() const { return elementCount(shape); }
  TensorType type() const { return {dtype, shape}; }
  // Every element converted; U64 above 2^63 comes out of integers() as its two's complement.
  std::vector<double> reals() const;
  std::vector<int64_t> integers() const;
  // Overwrites all elements, rounding to dtype straight from the double (integers wrap, BOOL is value != 0). Sizes must
  // agree.
  void setReals(const double *values);
  void setIntegers(const int64_t *values);
  HostTensor converted(DType to) const; // Cast's rules: float to integer truncates, to BOOL is x != 0

  template <typename T> T *as() { return reinterpret_cast<T *>(data.data()); }
  template <typename T> const T *as() const { return reinterpret_cast<const T *>(data.data()); }
};

// A tensor in an element type, without a copy where it has that already.
class AsType {
public:
  AsType(const HostTensor &t, DType dtype) : given(t) {
    if (t.dtype != dtype) held = t.converted(dtype);
  }
  const HostTensor &operator*() const { return held ? *held : given; }
  const HostTensor *operator->() const { return &**this; }

private:
  const HostTensor &given;
  std::optional<HostTensor> held;
};

} // namespace cleave::runtime
