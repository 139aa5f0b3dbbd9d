// The machines a plan is made for: nodes, devices a node, what a device can do, the links between them, and the
// software whose steps are priced.
//
//   name: my-cluster
//   nodes: 2
//   devices_per_node: 8
//   device: {kind: a100-80g, memory_gib: 80, tflops: {fp32: 19.5, bf16: 312}, memory_gbps: 2039}
//   links: {node: {gbps: 2400, latency_us: 5, topology: switch}, network: {gbps: 200, latency_us: 12, shared_by: 1}}
//
// or a preset's name: `a100-80g:8x2` (2 nodes of 8), `cpu:4` (four virtual devices of this machine). Keys, units and
// ranges are a table, cluster_fields.h.
#pragma once
#include "runtime/base/sharding/operation_kind.h"
#include "runtime/base/status.h"
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

// The figures of a device, by the keys of cluster_fields.cpp in SI units. Below 0: not told, and filled in from the
// software's profile (device_presets.h), or the same as another figure.
struct Device {
  std::string kind = {};
  std::string cpu = "native";
  double memoryBytes = 0, memoryReserve = -1; // the part of it that no plan fills
  std::map<std::string, double> flops = {};   // by precision
  double memoryBandwidth = 0;
  double launchSeconds = -1, soloLaunchSeconds = -1, dispatchSeconds = -1;
  double overlap = -1, gradientOverlap = -1, interference = -1;
  double speedSpread = -1;        // relative standard deviation of products' rates between devices of a kind
  double exponentialSeconds = -1; // of attention in one kernel
  double predictionError = -1;    // relative: nine of ten measured steps are no farther from the predicted one
  double computeEfficiency = -1, bandwidthEfficiency = -1;
  double computeFactor = 1;            // seconds of compute, for each that the other figures give
  std::vector<CacheLevel> caches = {}; // from near to far; beyond the last, and without any, memory
  double cacheHoldSeconds = 0;         // 0: nobody else uses them
  double halfRateDimension = -1;
  double coreShare = 1;
  double batchedEfficiency = 1, batchStartSeconds = 0;
  double groupedEfficiency = -1;   // of experts' products (not a CPU's)
  double expertStartSeconds = -1;  // of each product; a product's start if not told
  double productStartSeconds = -1; // a launch where it is not told
  double productReadSeconds = 0, productTraffic = 1, productWriteTraffic = 0;
  ConvolutionLaw convolutions = {};
  std::array<double, elementWorks> elementSeconds{}; // by ElementWork
  bool fusedAttention = false;
  double softmaxMatrices = -1;
  double fusedRow = -1; // elements
  double scoreTraffic = -1, tensorOverlap = -1, kernelTraffic = -1, updateTraffic = -1;

  double usableBytes() const { return memoryBytes * (1 - memoryReserve); } // that a plan may fill
  // FLOP/s at a precision; fp32's where the device has no figure of its own.
  double flopsAt(const std::string &precision) const;
  bool isCpu() const { return kind == "cpu"; }
  // Seconds for a byte that was last touched so many bytes, and so many seconds, ago: between two cache levels linear
  // in the logarithm of the distance; after `age` seconds all but exp(-age / cacheHoldSeconds) of it has left for
  // memory.
  double secondsPerByte(double distance, double age = 0) const;
  // The mean over distances that are spread evenly between 0 and `farthest`, and ages between 0 and `oldest` with them.
  double meanSecondsPerByte(double farthest, double oldest = 0) const;
  // The bytes that stay in some cache: the farthest level that is a quarter faster than memory; 0 without one.
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
  double latency = -1;  // seconds a message that goes there; below 0: that of the level below
};
// There are no more above each other.
inline constexpr size_t mostNetworkLevels = 4;

struct Cluster {
  std::string name = {}, software = "cleave"; // whose steps are priced: a profile of device_presets.h
  int64_t nodes = 1, devicesPerNode = 1;
  Device device = {};
  Link node = {};              // between devices of one node
  Link network = {};           // between nodes under one switch; a device's share
  Link host = {};              // between devices and their host's memory, each way
  int64_t hostSharedBy = 1;    // devices that share one such link
  int64_t networkSharedBy = 1; // devices that share a network card; 0: not told
  double hostMemoryBytes = 0;  // of a node, for what is offloaded; 0: not told
  double pricePerHour = 0;     // of all devices; 0: not told
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

} // namespace cleave::planner
