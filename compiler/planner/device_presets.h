// Every constant of the cost model, in one place with its source.
//
//   Device d = devicePreset("a100-80g").value();   // 80 GiB, 19.5 TFLOP/s fp32, 2039 GB/s
#pragma once
#include "compiler/planner/cluster.h"
#include <optional>

namespace cleave::planner {

// Device kinds: data sheets of the makers. Empty for a kind that is not known.
std::optional<Device> devicePreset(const std::string &kind);
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
// What fusion leaves of the traffic of elementwise, broadcast and reduction operations: a cluster of several reads its
// inputs and writes its outputs once. Estimate: LayerNorm in core operations moves 9 tensors, fused it moves 3.
inline constexpr double fusedTraffic = 0.4;
// The compiler folds constants to at most a few MiB (normalize); larger ones are splats, which kernels hold as scalars.
inline constexpr double storedConstantBytes = 16.0 * (1 << 20);
// Part of a device's memory a plan may fill: the rest is for the library's own allocations and fragmentation.
// Estimate; CUDA context, cuBLAS and NCCL take 1 to 3 GiB of an 80 GiB device.
inline constexpr double usableMemory = 0.94;
// A matrix product below this size is slower: efficiency = c * d / (d + half), d its smallest local dimension.
// Half of a 128-wide tensor core tile; oneDNN reaches 90 % of its rate at 512x2048x512.
inline constexpr double halfRateDimension = 24;
} // namespace constants

} // namespace cleave::planner
