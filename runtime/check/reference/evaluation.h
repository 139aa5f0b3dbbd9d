// The input of one operator's evaluation; the families' functions (evaluate_*.cpp) take it and are listed in
// evaluator.cpp's table.
#pragma once
#include "runtime/check/reference/evaluator.h"
#include <stdexcept>

namespace cleave::runtime {

// Thrown inside the evaluator only; evaluate() turns it into a Status.
struct EvaluationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Evaluation {
  const std::string &op;
  std::span<const HostTensor *const> operands;
  const Attributes &attributes;
  TensorType type; // of the result, with F64 for floats under Precision::Double

  const HostTensor &operand(size_t i) const;
  const Ints &ints(const std::string &name) const;
  int64_t integer(const std::string &name) const;
  double real(const std::string &name) const;
  bool flag(const std::string &name) const;
  void check(bool holds, const std::string &what) const; // throws EvaluationError
};

// Read access to a tensor's elements as doubles.
class Reals {
public:
  explicit Reals(const HostTensor &t) : doubles(t, plan::F64), values(doubles->as<double>()) {}
  Reals(const Reals &) = delete;
  double operator[](int64_t i) const { return values[i]; }
  const double *data() const { return values; }

private:
  AsType doubles;
  const double *values;
};

// Makes a result: computes in doubles, stores rounded to the type. Without `fill` every element is to be written.
class RealResult {
public:
  explicit RealResult(const TensorType &type) : dtype(type.dtype), doubles(HostTensor::unset(plan::F64, type.shape)) {}
  RealResult(const TensorType &type, double fill) : RealResult(type) {
    double *to = data();
    forEachElement(doubles.elements(), [&](int64_t i) { to[i] = fill; });
  }
  double *data() { return doubles.as<double>(); }
  HostTensor finish() { return dtype == plan::F64 ? std::move(doubles) : doubles.converted(dtype); }

private:
  DType dtype;
  HostTensor doubles;
};

// Calls visit(linear index, multi-index) for every element of `shape`, row-major.
template <typename Visit> void forEachIndex(const std::vector<int64_t> &shape, Visit visit) {
  int64_t count = elementCount(shape);
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t linear = 0; linear < count; ++linear) {
    visit(linear, index);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

// target[i] = source[offset + sum i_d * strides[d]] for row-major i in `sizes`, elements of `bytes` bytes.
void copyStrided(const std::byte *source, int64_t offset, const Ints &strides, const Ints &sizes, int64_t bytes,
                 std::byte *target);

using EvaluateFunction = HostTensor (*)(const Evaluation &);
using EvaluatorTable = std::map<std::string, EvaluateFunction>;
void addElementwise(EvaluatorTable &table);
void addMovement(EvaluatorTable &table);
void addReductions(EvaluatorTable &table);
void addContract(EvaluatorTable &table);
void addConvolutions(EvaluatorTable &table);

} // namespace cleave::runtime
