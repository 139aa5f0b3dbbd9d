// Every constant of the cost model, in one place with its source.
//
//   Device d = devicePreset("a100-80g").value();   // 80 GiB, 19.5 TFLOP/s fp32, 2039 GB/s
#pragma once
#include "compiler/planner/cluster.h"
#include <optional>

namespace cleave::planner {

// Device kinds: data sheets of the makers. Empty for a kind that is not known.
std::optional<Device> devicePreset(const std::string &kind);
// "sm_90": the compute capability of a GPU by its kind, from the first part of the name ("h100-80g", "h100-pcie"), or
// a kind that is itself a capability ("sm_89"). Empty: no NVIDIA GPU.
std::string computeCapability(const std::string &kind);
// Links of the servers these devices are sold in: NVLink inside a node; between nodes one NIC a device.
void linkPreset(const std::string &kind, Link &node, Link &network);
// `devices` virtual devices of a machine with `cores` and `memoryBytes`: they share its cores, memory and its
// bandwidth.
Device cpuDevice(int64_t devices, int64_t cores, double memoryBytes);
Link cpuLink(int64_t devices);
// Figures that a cluster file may leave out, by what they describe.
void fillDefaults(Device &device);

namespace constants {
// Bytes of a gradient bucket; PyTorch DDP's default (bucket_cap_mb=25).
inline constexpr double bucketBytes = 25.0 * (1 << 20);
// The compiler folds constants to at most a few MiB (normalize); larger ones are splats, which kernels hold as scalars.
inline constexpr double storedConstantBytes = 16.0 * (1 << 20);
// Part of a device's memory a plan may fill: the rest is for the library's own allocations and fragmentation.
// Estimate; CUDA context, cuBLAS and NCCL take 1 to 3 GiB of an 80 GiB device.
inline constexpr double usableMemory = 0.94;
// Longest row, in elements, of a reduction that is fused with its neighbours: Megatron-LM's fused softmax kernels take
// rows of up to 16384.
inline constexpr double fusedRow = 16384;

// Fitted on the calibration rows (docs/cost-model.md; `./dev bench cost-model` names them). One set for all GPUs.
inline constexpr double gpuComputeEfficiency = 0.81;
inline constexpr double gpuBandwidthEfficiency = 0.7;
inline constexpr double gpuKernelTraffic = 1.4;
inline constexpr double gpuHalfRateDimension = 12;
inline constexpr double gpuDispatchSeconds = 70e-6;
inline constexpr double nodeLatency = 20e-6;
inline constexpr double networkLatency = 20e-6;
inline constexpr double localPass = 0.48;
inline constexpr double networkEfficiency = 0.92;
} // namespace constants

} // namespace cleave::planner
