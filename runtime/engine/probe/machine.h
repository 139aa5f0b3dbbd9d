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
#include "runtime/plan/machine_figures.h"
#include <functional>

namespace cleave::runtime {

// Bytes of a device that no cache keeps while all devices touch as many; of a machine with little memory a part of it.
int64_t farBytes(int64_t devices);

struct MachineProbe {
  int64_t devices = 1;
  std::vector<KernelTrial> kernels = {};
  std::function<void(const std::string &)> say = [](const std::string &) {}; // a line at a time, as it is measured
  Result<MachineFigures> measure() const;
};

} // namespace cleave::runtime
