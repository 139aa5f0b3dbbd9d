// A normalized model as a plan of one device, executed by the runtime as any plan is.
//
//   Evaluate evaluate = evaluateOn(Device::Cpu, "");
//   evaluate(model, {x, y})           inputs are those of the routine "evaluate", results parameters that it writes
#pragma once
#include "test/conformance/node_test.h"

namespace cleave::conformance {

enum class Device {
  Cpu,
  Emulation, // the kernels of a GPU's plan on an emulated grid, oneDNN for its libraries
  Cuda,      // a GPU
  FakeCuda   // the driver for GPUs, on the fake of NVIDIA's libraries that CLEAVE_CUDA_LIBRARIES names
};

// `target`: of the GPU's code ("sm_90"); not read on the CPU. `channelsLast`: so compute all convolutions and pools.
Evaluate evaluateOn(Device device, std::string target, bool channelsLast = false);

} // namespace cleave::conformance
