// Evaluates one core operator on host tensors by plain loops, in double precision. It is the oracle of `cleave verify`,
// folds constants in the compiler and runs the conformance tests, so it favours being obviously right.
//
//   HostTensor a = ..., b = ...;                             // [2,3], [3,4]
//   evaluate("Contract", {&a, &b}, {{"lhs_indices", Ints{0, 1}}, {"rhs_indices", Ints{1, 2}},
//            {"result_indices", Ints{0, 2}}}, {{plan::F32, {2, 4}}}, Precision::AsTyped)
//
// Names and attributes are those of dialects/onnx/OnnxCoreOps.td. A unit attribute is an empty or nonzero list of ints;
// type attributes (Cast's `to`, Iota's `type`) are not needed, the result types say it. `shard_axes` is refused: this
// evaluator knows one device.
#pragma once
#include "runtime/base/status.h"
#include "runtime/check/reference/host_tensor.h"
#include <map>
#include <span>

namespace cleave::runtime {

using Ints = std::vector<int64_t>;
using Attribute = std::variant<Ints, double, std::string, HostTensor>;
using Attributes = std::map<std::string, Attribute>;

// AsTyped rounds every result to its type. Double keeps f32 results as F64 (operands may be F64 too); results of 16
// bits are rounded to them: a model computed on bf16 is another one than in fp32, in whatever precision its sums are
// done.
enum class Precision { AsTyped, Double };
plan::DType heldAs(plan::DType dtype, Precision precision);

// One tensor for each result type. Fails with a message for an unknown op, a missing attribute or shapes that do not
// agree with the op.
Result<std::vector<HostTensor>> evaluate(const std::string &op, std::span<const HostTensor *const> operands,
                                         const Attributes &attributes, std::span<const TensorType> resultTypes,
                                         Precision precision = Precision::AsTyped);

// Whether evaluate knows the op.
bool canEvaluate(const std::string &op);
// How many operands a function of elements has (Exp 1, Add 2); 0 for other ops.
size_t elementOperands(const std::string &op);

} // namespace cleave::runtime
