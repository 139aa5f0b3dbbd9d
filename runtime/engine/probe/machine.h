// Measures this machine's CPU as the runtime uses it: every number is the time of commands that the executor runs, on
// as many virtual devices as a plan would have, all of them active, each with the threads that it would get.
//
//   MachineProbe probe{.devices = 2, .say = print};
//   Result<MachineFigures> figures = probe.measure();
//   figures->products[0]     m=512 n=512 k=512: 2.1e11 FLOP/s of one device while the other one is as busy
//
// A figure is the median of at least nine timed runs (five of long ones) after two that warm up; a run is long enough
// that what it costs to start one does not count. All of it takes less than half a minute.
#pragma once
#include "runtime/base/status.h"
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cleave::plan {
class Plan;
}
namespace cleave::runtime {

// A layer in training, f32: `samples` rows through weights [in, out], the gradient of the rows and that of the weights.
// Each product reads what the one before has written, on whatever cores.
struct LayerFigure {
  int64_t samples = 0, in = 0, out = 0;
  double seconds = 0;    // of the three products
  double rowSeconds = 0; // of the two that make rows, one after the other without the third
};
// Matrix products, f32: `batch` of out[m,n] = a[m,k] b[k,n].
struct ProductFigure {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  double rate = 0;            // FLOP/s of one device
  bool isStrided = false;     // rows of the operands lie apart, as attention has them
  bool isStreaming = false;   // b, or where m is larger than k the result, lies in memory, each time elsewhere
  bool hasOwnWeights = false; // each product of the batch multiplies by weights of its own, as experts do
};
// The passes of a convolution, f32: y[samples, out, side, side] of x[samples, in, side, side] and weights [out, in,
// kernel, kernel].
struct ConvolutionFigure {
  int64_t samples = 0, in = 0, out = 0, side = 0, kernel = 0;
  double forward = 0, gradInput = 0, gradWeight = 0; // seconds
};
// A kernel of the compiler, as a plan whose step launches it once; what it does with how many elements (names of
// planner/cluster.h), and the bytes that it reads and writes. `update`: arithmetic in memory as an optimizer does it.
// `step`: kernels of a training step, on rows of so many elements together, and products of those with weights [width,
// width], so many of its commands.
struct KernelWork {
  std::string work;
  double elements = 0, bytes = 0;
  int commands = 1, products = 0;
  int64_t width = 0;
};
struct KernelTrial : KernelWork {
  static constexpr const char *update = "update", *step = "step";
  std::shared_ptr<const plan::Plan> plan;
};
struct KernelFigure : KernelWork {
  double seconds = 0;
};
// A copy: reads and writes `bytes` together, over and over the same ones.
struct StreamFigure {
  int64_t bytes = 0;
  double together = 0, alone = 0; // bytes/s of one device while all copy; while the others rest
};
// The same copy, each time `pause` seconds after the last; they pass with products in the nearest cache.
struct ReturnFigure {
  int64_t bytes = 0;
  double pause = 0, seconds = 0; // of the copy
};
// A collective of `members` neighbouring devices (the other groups do the same), between two small kernels.
struct CollectiveFigure {
  std::string op; // "all_reduce", "reduce_scatter", "all_gather", "all_to_all"
  int64_t members = 0;
  int64_t bytes = 0; // of the whole tensor (see planner/cost.h)
  double seconds = 0;
  bool isFar = false; // they come from memory, not from a cache
};

struct MachineFigures {
  int64_t devices = 1;
  int cores = 1, threads = 1;  // of the machine; a device's
  std::string cpu = "native";  // instructions that its kernels may use: "x86-64-v3"
  double memoryBytes = 0;      // of the machine
  double emptyStepSeconds = 0; // a step of one trivial command
  double kernelSeconds = 0;    // a kernel that does nothing, on all threads of the device
  double soloSeconds = 0;      // the same with too little to share: on one thread
  std::vector<LayerFigure> layers;
  std::vector<ProductFigure> products; // of attention and of streaming weights
  std::vector<ConvolutionFigure> convolutions;
  std::vector<KernelFigure> kernels;
  std::vector<StreamFigure> streams;
  std::vector<ReturnFigure> returns;
  std::vector<CollectiveFigure> collectives; // none with one device
};

// Bytes of a device that no cache keeps while all devices touch as many; of a machine with little memory a part of it.
int64_t farBytes(int64_t devices);

struct MachineProbe {
  int64_t devices = 1;
  std::vector<KernelTrial> kernels = {};
  std::function<void(const std::string &)> say = [](const std::string &) {}; // a line at a time, as it is measured
  Result<MachineFigures> measure() const;
};

} // namespace cleave::runtime
