// A plan of the CPU's tests as one for GPUs, its kernels given to the fake driver.
//
//   FakeGpu gpu;                                  // NVIDIA's libraries are the fake ones from now on
//   plan::Plan plan = gpu.planOf(mlpPlan({.dp = 2}));
#pragma once
#include "plan/plan.pb.h"
#include "test/unit/cuda/fake/fake_cuda.h"
#include <deque>
#include <string>

namespace cleave::runtime::test {

class FakeGpu {
public:
  FakeGpu();
  ~FakeGpu();
  plan::Plan planOf(plan::Plan cpu);
  void fail(const char *kernel, int error) { failKernel(kernel, error); }
  void refuse(const char *kernel, int error) { refuseKernel(kernel, error); }
  void refuseCaptured(const char *kernel, int error) { refuseCapturedKernel(kernel, error); }
  void exports(bool able) { setExports(able); }
  unsigned long long unexported() { return unexportedBytes(); }
  void hang(const char *kernel) { hangKernel(kernel); }
  void depth(unsigned long long most) { setDepth(most); }
  void memory(unsigned long long bytes) { setMemory(bytes); }
  int graphLaunches() { return launches(); }
  unsigned long long allocated() { return bytes(); }
  int uploads() { return copies(); }
  int capturedUploads() { return capturedCopies(); }
  void epilogues(int error) { setEpilogues(error); } // what the fake cuBLASLt says of every epilogue
  static void count(int gpus);                       // 1 at first
  static std::string cache();                        // where chosen algorithms are kept; empty at first

private:
  struct Bound {
    void (*function)(int64_t, int64_t, void *const *, const int64_t *);
    int buffers, scalars;
  };
  void addReductions();
  void addCopy(plan::Plan &plan, plan::Command &command);
  void addFill(plan::Plan &plan, plan::Command &command);
  static void runBound(const unsigned long long *parameters, unsigned blocks, unsigned threads, void *context);
  std::deque<Bound> bound; // what the fake driver points to
  decltype(&fake_cuda_kernel) addKernel;
  decltype(&fake_cuda_fail) failKernel;
  decltype(&fake_cuda_refuse) refuseKernel;
  decltype(&fake_cuda_refuse_captured) refuseCapturedKernel;
  decltype(&fake_cuda_exports) setExports;
  decltype(&fake_cuda_unexported) unexportedBytes;
  decltype(&fake_cuda_hang) hangKernel;
  decltype(&fake_cuda_depth) setDepth;
  decltype(&fake_cuda_memory) setMemory;
  decltype(&fake_cuda_graph_launches) launches;
  decltype(&fake_cuda_allocated) bytes;
  decltype(&fake_cuda_uploads) copies;
  decltype(&fake_cuda_captured_uploads) capturedCopies;
  decltype(&fake_blas_epilogues) setEpilogues;
  decltype(&fake_cuda_reset) reset;
};

} // namespace cleave::runtime::test
