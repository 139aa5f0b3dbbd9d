// Runs a function of core ops twice: op by op on the reference evaluator, and with its clusters compiled to kernels
// that are loaded from memory and called over split ranges, as the runtime does. Ops outside kernels go to the
// evaluator both times.
//
//   KernelMachine machine(R"(func.func @f(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {...})");
//   machine.compile();
//   machine.expectSame(machine.randomInputs(seed));
#pragma once
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "runtime/check/reference/evaluator.h"
#include <string>
#include <vector>

namespace cleave::test {

using runtime::HostTensor;

class KernelMachine {
public:
  explicit KernelMachine(const std::string &text);
  ~KernelMachine();

  // Runs the passes and loads the kernels. False, with a test failure, if a step fails.
  bool compile() { return compile(Device::Cpu); }
  // Gpu: the kernels made for a GPU, run on an emulated grid (runtime/engine/device/emulation).
  enum class Device : uint8_t { Cpu, Gpu };
  bool compile(Device device);
  // Whose instructions kernels may use: the variable CLEAVE_CPU (x86-64-v3), else this machine's.
  static std::string cpu();
  size_t numKernels() const { return kernels; }
  std::vector<plan::LaunchOp> launches();

  // Floats uniform in [low, high), integers in [0, 5), by a fixed generator.
  std::vector<HostTensor> randomInputs(unsigned seed, double low = -2, double high = 2);
  // `parts`: into how many pieces every range is cut. `shareBuffers`: use every inplace pair that is allowed.
  std::vector<HostTensor> runCompiled(const std::vector<HostTensor> &inputs, int parts = 1, bool shareBuffers = false);
  std::vector<HostTensor> runReference(const std::vector<HostTensor> &inputs);
  // Compiled equals reference within `tolerance` relative to the largest element, and all ways to cut the ranges and to
  // share buffers give the same bits.
  void expectSame(const std::vector<HostTensor> &inputs, double tolerance = 2e-6);
  // Where the coordinate-dependent scalars come from: the index of every axis.
  std::map<std::string, int64_t> coordinate;

  std::string text(); // of the compiled module
  // For benchmarks: calls the only launch on buffers of the machine's own.
  using Function = void (*)(int64_t, int64_t, void *const *, const int64_t *);
  Function function(llvm::StringRef symbol);

private:
  std::vector<HostTensor> run(mlir::func::FuncOp function, const std::vector<HostTensor> &inputs, int parts,
                              bool share);
  std::vector<HostTensor> launch(plan::LaunchOp op, const std::vector<const HostTensor *> &operands, int parts,
                                 bool share);
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> original, compiled;
  bool load(const std::string &object);
  void *object = nullptr;
  size_t kernels = 0;
};

} // namespace cleave::test
