// The machines a plan is made for: nodes, devices a node, what a device can do, and the links between them.
//
//   name: my-cluster
//   nodes: 2
//   devices_per_node: 8
//   device: {kind: a100-80g, memory_gib: 80, tflops: {fp32: 19.5, bf16: 312}, memory_gbps: 2039}
//   links: {node: {gbps: 2400, latency_us: 5, topology: switch}, network: {gbps: 200, latency_us: 12, shared_by: 1},
//           host: {gbps: 252, latency_us: 10, shared_by: 2}}
//   host_memory_gib: 2048
//
// or a preset's name: `a100-80g:8x2` (2 nodes of 8), `cpu:4` (four virtual devices of this machine).
#pragma once
#include "compiler/sharding/operation_kind.h"
#include "runtime/status.h"
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cleave::planner {

using dist::ElementWork;
using dist::elementWorkNames;
using dist::elementWorks;

// Bytes that are touched again after so many others move so fast.
struct CacheLevel {
  double bytes = 0, bandwidth = 0; // bytes/s
};

// Convolutions of a CPU: tensors are brought into blocks of channels and back, and what is missing of a block is worked
// on as if it were there (cost.h).
struct ConvolutionLaw {
  double block = 0;        // channels; 0: a convolution is the product that it is
  double efficiency = 1;   // reached part of `flops`, with whole blocks
  double startSeconds = 0; // what each takes beside its work
  double orderSeconds = 0; // a byte that is read or written to bring a tensor into blocks or back
};

struct Device {
  std::string kind;           // "a100-80g", "cpu", or a name of the person's own
  std::string cpu = "native"; // whose instructions kernels for CPUs may use: "x86-64-v3", an LLVM name; native: those
                              // of the machine that compiles
  double memoryBytes = 0;
  std::map<std::string, double> flops; // by precision ("fp32", "bf16", ...): FLOP/s of one device
  double memoryBandwidth = 0;          // bytes/s of one device
  double launchSeconds = 0;            // fixed cost of one kernel on the device
  double soloLaunchSeconds = -1;       // CPU: the same of one that is too small to be shared among a device's threads
  double dispatchSeconds = -1;         // what the host needs to hand one kernel over
  double overlap = 0;                  // part of compute time behind which communication can hide, 0..1
  double gradientOverlap = -1;         // the same for gradients that are summed once a step (ZeRO 0 and 1)
  double computeEfficiency = 0;        // reached part of `flops` by large matrix products
  double bandwidthEfficiency = 0;      // reached part of `memoryBandwidth` by streaming kernels
  std::vector<CacheLevel> caches = {}; // from near to far; beyond the last, and without any, memory
  double cacheHoldSeconds =
      0; // others who use the caches leave 1/e of what was not touched for so long; 0: nobody does
  double halfRateDimension = -1; // elements that a matrix product loses in each dimension (cost.h)
  // Cores of a device's own: below 1 devices take turns, and the rates above are those with all of them at work.
  double coreShare = 1;
  double batchedEfficiency = 1;    // part of that rate of products in batches, whose rows lie apart (attention)
  double batchStartSeconds = 0;    // and what each product of a batch takes beside its work
  double expertStartSeconds = -1;  // CPU: the same where each has weights of its own; a product's start if not told
  double productStartSeconds = -1; // what a product takes beside its work; a launch where it is not told
  double productReadSeconds = 0;   // CPU: a byte that a product copies into another order before it works (cost.h)
  double productTraffic = 1;       // bytes that a product moves for each that it must
  double productWriteTraffic = 0;  // CPU: the same of what it writes to memory, beside its work
  ConvolutionLaw convolutions = {};
  // Seconds an element, by ElementWork. Zero on GPUs, where the memory is the slower one.
  std::array<double, elementWorks> elementSeconds{};
  bool fusedAttention = false; // scores stay on the chip (FlashAttention)
  double scoreTraffic = -1;    // the same as kernelTraffic for attention's scores, where they do not
  double tensorOverlap = -1;   // part of tensor parallel gathers and scatters that products next to them hide
  double kernelTraffic = 0;    // bytes that fused kernels move for each byte that they must
  double updateTraffic = 0;    // the same for the optimizer

  // FLOP/s at a precision; fp32's where the device has no figure of its own.
  double flopsAt(const std::string &precision) const;
  bool isCpu() const { return kind == "cpu"; }
  // Of a byte that was touched last so many bytes, and so many seconds, ago: between two cache levels linear in the
  // logarithm of the distance; after `age` seconds all but exp(-age / cacheHoldSeconds) of it has left for memory.
  double secondsPerByte(double distance, double age = 0) const;
  // The mean over distances that are spread evenly between 0 and `farthest`, and ages between 0 and `oldest` with them.
  double meanSecondsPerByte(double farthest, double oldest = 0) const;
  // What stays in some cache: the farthest level that is a quarter faster than memory; 0 without one.
  double cacheBytes() const;
};

struct Link {
  // Switch: messages between memories of their own. Memory: devices of one process that read each other's memory
  // between two barriers.
  enum class Topology : uint8_t { Switch, Memory };
  double bandwidth = 0; // bytes/s a device can send, and as much receive; Memory: read and write together
  double latency = 0;   // seconds a message; Memory: a collective of all devices, from one kernel to the next
  Topology topology = Topology::Switch;
  double cacheBandwidth = 0; // Memory: of what others wrote and fits into Device::cacheBytes(); 0: no such cache
};

// A network above its nodes: switches, each with so many nodes under it, in the order of the nodes.
struct NetworkLevel {
  int64_t nodes = 1;
  double bandwidth = 0; // bytes/s, each way: a device's share of what a switch has to the others of its level
  double latency = 0;   // seconds a message that goes there
};
// There are no more above each other.
inline constexpr size_t mostNetworkLevels = 4;

struct Cluster {
  std::string name;
  int64_t nodes = 1;
  int64_t devicesPerNode = 1;
  Device device;
  Link node;                   // between devices of one node
  Link network;                // between nodes under one switch; a device's share
  Link host;                   // between devices and their host's memory, each way
  int64_t hostSharedBy = 1;    // devices that share one such link
  int64_t networkSharedBy = 1; // devices that share a network card
  double hostMemoryBytes = 0;  // of a node, for what is offloaded; 0: not told
  // From the lowest switches to the highest: each has the nodes of several of those below it, slower and later. None:
  // all nodes are under one switch.
  std::vector<NetworkLevel> levels = {};

  int64_t numDevices() const { return nodes * devicesPerNode; }
  // The YAML form; parseClusterYaml gives the same cluster back.
  std::string yaml() const;
};

// A preset's name, or the path of a YAML file. Errors name file and line, or list the presets.
Result<Cluster> parseCluster(const std::string &presetOrPath);
// Strict: unknown keys, wrong types, missing or senseless values are errors "FILE:LINE: ...".
Result<Cluster> parseClusterYaml(const std::string &text, const std::string &file);
// "a100-80g", ...: the device kinds presets exist for.
std::vector<std::string> presetKinds();

} // namespace cleave::planner
