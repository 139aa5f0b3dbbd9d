// Measures this machine's GPUs as the runtime uses them: every number is the time of commands of compiled plans, whose
// step is one CUDA graph. Several GPUs of this process work at the same time, as in a run.
//
//   std::vector<GpuDescription> gpus = findGpus();                       // "NVIDIA H100 80GB HBM3", 90, 85.0e9
//   GpuProbe probe{.gpu = gpus[0], .devices = 2, .trials = trials};      // compiler/trials/gpu_trials.h makes them
//   Result<GpuFigures> figures = probe.measure();
#pragma once
#include "runtime/base/status.h"
#include "runtime/plan/machine_figures.h"
#include <functional>

namespace cleave::runtime {

// Those that the driver finds; none where there is no driver.
std::vector<GpuDescription> findGpus();

struct GpuProbe {
  GpuDescription gpu;
  int64_t devices = 1;
  std::vector<GpuTrial> trials;                                              // the first: of kind Launch
  std::function<void(const std::string &)> say = [](const std::string &) {}; // a line at a time, as it is measured
  Result<GpuFigures> measure() const;
};

} // namespace cleave::runtime
