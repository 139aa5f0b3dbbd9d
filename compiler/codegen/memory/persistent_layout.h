// The part of the arena that lasts: a slot for every onnx.param (this device's shard), host scalar and constant.
//
//   mesh dp=2; onnx.param @w : tensor<64x256xf32> sharding [{dp},{}]   -> 32768 bytes at offset 0
//   mask : plan.constant tensor<16x16xi1>                              -> 256 bytes after the parameters
//
// Each program (a coordinate along "pp"; one without pipelines) has a part of its own, with what it holds: a
// parameter's `place.programs` (absent: all), the functions whose `place.program` it is.
//
// A tensor marked `plan.on_host` (OffloadState) has its slot in the device's host memory, at a place
// (runtime/plan/routine.h) from hostMemory on.
//
// Order: parameters, running statistics, accumulators, optimizer state, host scalars, constants.
#pragma once
#include "compiler/codegen/codegen.h"
#include "dialects/onnx/Onnx.h"
#include "dialects/plan/Plan.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/base/sharding/sharding.h"
#include "llvm/ADT/MapVector.h"

namespace cleave::codegen {

struct Slot {
  int64_t offset = 0, bytes = 0;
};

class PersistentLayout {
public:
  // Reads the mesh from the module's dist.mesh (absent: one device), appends to the plan.program_offsets of every
  // onnx.param the program holds, and finds the host scalars and constants of its functions. Fails where a shard does
  // not divide evenly.
  mlir::LogicalResult layOut(mlir::ModuleOp module, int64_t program);

  std::optional<Slot> ofParam(mlir::FlatSymbolRefAttr name) const;
  int64_t ofConstant(plan::ConstantCommandOp constant) const; // equal constants share a slot
  // Nothing where the argument is not a host scalar.
  std::optional<int64_t> ofHostScalar(mlir::func::FuncOp function, unsigned argument) const;
  int64_t bytes() const { return end; }
  int64_t hostBytes() const { return hostEnd; }
  const MemoryReport &report() const { return memory; }

private:
  static int64_t take(int64_t bytes, int64_t &end);

  llvm::DenseMap<mlir::Attribute, Slot> params; // by FlatSymbolRefAttr
  llvm::DenseMap<mlir::Attribute, int64_t> constants, hosts;
  MemoryReport memory;
  int64_t end = 0, hostEnd = 0;
};

// The program that a function belongs to, how many there are, and which of them hold a parameter.
int64_t programOf(mlir::func::FuncOp function);
int64_t programCount(mlir::ModuleOp module);
llvm::SmallVector<int64_t> holdersOf(onnx::ParamOp param, int64_t programs);
// Whether it lies in the devices' host memory.
bool isOnHost(onnx::ParamOp param);
// Its place in a program that holds it.
std::optional<int64_t> offsetIn(onnx::ParamOp param, int64_t program, int64_t programs);

// The key that names a host scalar across functions: its kind, base and type. Null for other arguments.
mlir::Attribute hostScalarKey(mlir::func::FuncOp function, unsigned argument);

// The module's dist.mesh; no axes when it has none.
dist::Mesh meshOfModule(mlir::ModuleOp module);
// The home layout of a persistent tensor.
dist::Sharding homeLayout(onnx::ParamOp param);

} // namespace cleave::codegen
