// One of ONNX's node tests: a folder with a model, its inputs and the outputs that ONNX's reference gives for them.
//
//   Outcome outcome = NodeTest("node/test_add").run(evaluateByReference);
//
// Operands that must be known when a model is compiled (a Reshape's shape) are inputs in these tests: where the test
// does not normalize with all of its inputs as arguments, it is tried again with its integers, then all, as constants;
// first without its first input, which is most often what the operator works on.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "runtime/base/status.h"
#include "runtime/check/reference/host_tensor.h"
#include "test/conformance/outcome.h"
#include <filesystem>
#include <functional>

namespace cleave::conformance {

using runtime::HostTensor;

// The results of a normalized @model on these arguments. It may change the module.
using Evaluate =
    std::function<Result<std::vector<HostTensor>>(mlir::func::FuncOp model, const std::vector<HostTensor> &arguments)>;

// Core op by core op by the reference evaluator.
Result<std::vector<HostTensor>> evaluateByReference(mlir::func::FuncOp model, const std::vector<HostTensor> &arguments);

class NodeTest {
public:
  explicit NodeTest(std::filesystem::path folder);
  Outcome run(const Evaluate &evaluate);

private:
  enum class Fixed { Nothing, LaterIntegers, Integers, Later, Everything }; // which inputs are constants of the model

  Outcome attempt(Fixed fixed, const Evaluate &evaluate);
  Outcome compare(mlir::func::FuncOp model, const std::vector<HostTensor> &inputs, const Evaluate &evaluate);
  Outcome refused(const std::string &what) const; // the first diagnostic, or else `what`
  mlir::DenseElementsAttr readTensor(const std::string &name);

  std::filesystem::path folder;
  mlir::MLIRContext context;
  std::string error; // the first diagnostic
  bool notKnown = false;
};

} // namespace cleave::conformance
