// All devices of a mesh in one thread: runs a partitioned module by the reference evaluator, op by op on every device,
// with collectives in memory. Nothing of code generation or of the runtime's executor is involved, so that what it
// proves is the partitioning itself.
//
//   SimulatedDevices one(module, Mesh{}), many(partitioned, mesh);
//   one.run("final", arguments) == many.run("final", arguments)         also parameters(), afterwards
//
// Floating-point values are doubles whatever their type says: differences are rounding, about 1e-12.
#pragma once
#include "dialects/dist/Dist.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "runtime/check/reference/evaluator.h"
#include <map>
#include <random>

namespace cleave::partition {

using runtime::HostTensor;

class SimulatedDevices {
public:
  // `initial`: persistent tensors by symbol, global.
  // `noise`: every result of a core op is changed by up to this relative amount, to measure how rounding is amplified.
  SimulatedDevices(mlir::ModuleOp module, dist::Mesh mesh, const std::map<std::string, HostTensor> &initial,
                   double noise = 0);

  // Global arguments in, global results out (every device must hold the same). Failures are gtest failures.
  std::vector<HostTensor> run(llvm::StringRef function, const std::vector<HostTensor> &arguments);
  // A persistent tensor put together from all devices.
  HostTensor parameter(const std::string &name) const;

private:
  using Devices = std::vector<HostTensor>; // one a device
  Devices evaluate(mlir::Operation *op, llvm::function_ref<const Devices &(mlir::Value)> operand) const;
  Devices collective(mlir::Operation *op, llvm::StringRef kind, const Devices &x, int64_t dim) const;
  HostTensor evaluateOn(mlir::Operation *op, std::vector<const HostTensor *> operands, int64_t device) const;

  mlir::ModuleOp module;
  dist::Mesh mesh;
  double noise;
  mutable std::mt19937 random{1};
  std::map<std::string, Devices> state;
  std::map<std::string, dist::Sharding> homes;
};

// Elementwise |a - b| <= tolerance * (1 + max|a|); a gtest failure otherwise, named `what`.
void expectClose(const HostTensor &a, const HostTensor &b, const std::string &what, double tolerance = 1e-9);
runtime::TensorType typeOf(mlir::Type type);

} // namespace cleave::partition
