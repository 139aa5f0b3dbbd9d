// Commands of cuDNN's on the fake GPU: which engines they get, by the fake cuDNN's word or, where it is installed, by
// the real one's, for an H100.
#pragma once
#include "runtime/engine/device/cuda/cuda_device.h"
#include "test/unit/cuda/fake_gpu.h"
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

namespace cleave::runtime::test {

// The driver's words on the engine that it takes; the addresses are of no memory.
class Engines {
public:
  explicit Engines(bool deterministic = false);
  // "": the command gets an engine, and no warning.
  std::string warningOf(const plan::Command &command);
  // The arena after these commands, which is `memory` before; of at most 1 MiB.
  std::vector<std::byte> run(const std::vector<plan::Command> &commands, std::vector<std::byte> memory);
  // All commands so far.
  int64_t workspaceBytes();

private:
  plan::Plan plan;
  std::unique_ptr<cuda::CudaDevice> device;
};

// Runs the test of this name in a process of its own, where the real cuDNN plans: it reads its environment when it is
// loaded. False: this is that process, and the test goes on. The library is FAKE_CUDNN_REAL, else one in /usr/local;
// without one the test is skipped.
bool askedElsewhere(const std::string &test);

} // namespace cleave::runtime::test
