// A GPU that this process uses: its context, the plan's kernels loaded there, the libraries' handles. Shared by the
// ranks that run on it.
//
//   Result<std::shared_ptr<Gpu>> gpu = Gpu::open(0, plan);
//   (*gpu)->driver.launchKernel((*gpu)->kernel(launch.kernel()), ...);
#pragma once
#include "plan/plan.pb.h"
#include "runtime/engine/device/cuda/dnn_plan.h"
#include "runtime/engine/device/cuda/library.h"
#include "runtime/engine/device/cuda/product_choices.h"
#include <memory>
#include <string>
#include <vector>

namespace cleave::runtime::cuda {

struct GpuKernel {
  Function function = nullptr;
  const plan::Kernel *source = nullptr; // of the plan, which outlives the GPU
};

class Gpu {
public:
  // Error: no driver, no such GPU, one that cannot run the plan's code, a module that does not load.
  static Result<std::shared_ptr<Gpu>> open(int ordinal, const plan::Plan &plan);
  static Result<int> count();
  ~Gpu();
  Gpu(const Gpu &) = delete;

  Status enter() const; // makes its context the calling thread's
  const GpuKernel &kernel(int32_t number) const { return kernels[static_cast<size_t>(number)]; }
  // A module of PTX text beside the plan's.
  Result<Module> load(const void *image, const char *what);
  Status check(int error, const char *doing) const { return driverStatus(driver, error, doing); }

  // Opened at the first call.
  Status needBlas();
  Status needDnn();
  const CublasLt *blas = nullptr;
  BlasHandle blasHandle = nullptr;
  ProductChoices products; // the plan's; of others the heuristic's first is taken
  const Cudnn *dnn = nullptr;
  DnnHandle dnnHandle = nullptr;
  std::unique_ptr<DnnPlans> dnnPlans;

  const Driver &driver;
  const int ordinal;
  int device = 0, capability = 0; // 90: compute capability 9.0
  bool virtualMemory = false;
  bool fileDescriptors = false, directAccess = false; // of virtual memory: other processes, network cards reach it
  bool tf32 = false;                                  // products of fp32 may round their operands
  bool deterministic = false;                         // engines of cuDNN give the same bits in every run
  std::vector<const Gpu *> peers; // other GPUs of this process, which read and write this one's memory
  std::string name;
  Context context = nullptr;

private:
  Gpu(const Driver &driver, int ordinal) : driver(driver), ordinal(ordinal) {}
  Status start(const plan::Plan &plan);
  std::vector<Module> modules;
  std::vector<GpuKernel> kernels;
};

} // namespace cleave::runtime::cuda
