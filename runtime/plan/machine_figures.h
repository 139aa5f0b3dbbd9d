// What is measured of a machine, for its description as a cluster, and the plans that are timed for it (probe/machine.h,
// probe/gpu_machine.h). Times are seconds, rates FLOP/s or bytes/s.
//
//   MachineFigures figures = ...;      figures.products[0]     m=512 n=512 k=512: 2.1e11 FLOP/s of one device
#pragma once
#include <cstdint>
#include <map>
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

struct GpuDescription {
  std::string name;
  int capability = 0; // 90: compute capability 9.0
  double memoryBytes = 0;
};

// A step of `plan` that does its work `times` times.
struct GpuTrial {
  enum class Kind : uint8_t { Launch, Stream, Product, AllReduce };
  Kind kind = Kind::Launch;
  int64_t times = 1;
  std::string precision = ""; // of a product: "fp32", "tf32", "bf16", "fp16"
  int64_t m = 0, n = 0, k = 0;
  double bytes = 0; // stream: read and written together, the first parameter's half of it; all-reduce: the tensor
  std::shared_ptr<const plan::Plan> plan = nullptr;
};

struct GpuFigures {
  GpuDescription gpu;
  int64_t devices = 1;
  double launchSeconds = 0; // a kernel of one warp, after another one
  double streamRate = 0;    // bytes/s of a kernel that reads and writes memory
  double hostRate = 0;      // bytes/s between a GPU and pinned memory, all GPUs active
  std::map<std::string, std::vector<ProductFigure>> products; // by precision
  std::vector<CollectiveFigure> collectives;                  // none with one GPU
};

} // namespace cleave::runtime
