// NVIDIA's libraries for tests, on the host's memory: a shared library with the entry points that the runtime calls.
// Streams are threads that run what is enqueued in order, with pauses here and there so that a missing wait shows;
// events, captures and graphs do what the driver's do, and misuse is an error: a capture whose streams do not come
// together, a wait inside of it for what is outside, a copy that leaves an allocation, a handle that is gone, or that
// is another GPU's than the thread's, memory of another GPU that this one was not let into. FAKE_CUDA_GPUS says how
// many there are, one if it is not set; with FAKE_CUDA_CAPTURES=0 nothing can be captured.
//
// Settings of tests:
#pragma once

extern "C" {
struct FakeKernel {
  const char *name;
  int parameters; // of 64 bits each, copied at the launch
  void (*run)(const unsigned long long *parameters, unsigned blocks, unsigned threads, void *context);
  void *context;
};
void fake_cuda_kernel(const FakeKernel *kernel);
void fake_cuda_memory(unsigned long long bytes);               // that a GPU has; allocations beyond fail
void fake_cuda_fail(const char *kernel, int error);            // when it runs, later than its launch; "": none
void fake_cuda_refuse(const char *kernel, int error);          // at its launch
void fake_cuda_refuse_captured(const char *kernel, int error); // at its launch while streams are captured
void fake_cuda_exports(bool able);             // whether others reach memory that says so when it is made
unsigned long long fake_cuda_unexported();     // bytes made since the reset that do not say so
void fake_cuda_hang(const char *kernel);       // while so; "": lets it go on
void fake_cuda_depth(unsigned long long most); // operations that a stream takes before the host waits for it
int fake_cuda_graph_launches();                // so far
unsigned long long fake_cuda_allocated();      // bytes, now
int fake_cuda_uploads();                       // copies from pinned memory to a GPU that are done, those of graphs too
int fake_cuda_captured_uploads();              // those that were put into a graph
void fake_blas_epilogues(int error);           // 0; else what the heuristic says of every epilogue
void fake_cuda_reset();                        // as at the start, but for kernels
}
