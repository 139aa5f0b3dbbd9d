// The CPU as a device: an arena, the plan's kernels, oneDNN.
#pragma once
#include "runtime/engine/device/cpu/kernel_object.h"
#include "runtime/engine/device/device.h"

namespace cleave::runtime {

struct CpuDeviceOptions {
  int64_t device = 0; // id in the mesh
  int threads = 1;
  std::shared_ptr<const KernelObject> kernels; // shared by the devices of a process; null: the plan has none
};

std::unique_ptr<Device> openCpuDevice(const dist::Mesh &mesh, CpuDeviceOptions options);

} // namespace cleave::runtime
