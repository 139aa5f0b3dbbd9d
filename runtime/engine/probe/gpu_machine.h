// Measures this machine's GPUs as the runtime uses them: every number is the time of commands of compiled plans, whose
// step is one CUDA graph. Several GPUs of this process work at the same time, as in a run.
//
//   std::vector<GpuDescription> gpus = findGpus();                       // "NVIDIA H100 80GB HBM3", 90, 85.0e9
//   GpuProbe probe{.gpu = gpus[0], .devices = 2, .trials = trials};      // compiler/gpu_trials.h makes them
//   Result<GpuFigures> figures = probe.measure();
#pragma once
#include "runtime/engine/probe/machine.h"
#include <map>

namespace cleave::runtime {

struct GpuDescription {
  std::string name;
  int capability = 0; // 90: compute capability 9.0
  double memoryBytes = 0;
};
// Those that the driver finds; none where there is no driver.
std::vector<GpuDescription> findGpus();

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

struct GpuProbe {
  GpuDescription gpu;
  int64_t devices = 1;
  std::vector<GpuTrial> trials;                                              // the first: of kind Launch
  std::function<void(const std::string &)> say = [](const std::string &) {}; // a line at a time, as it is measured
  Result<GpuFigures> measure() const;
};

} // namespace cleave::runtime
