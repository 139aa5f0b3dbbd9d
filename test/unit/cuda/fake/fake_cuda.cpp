#include "test/unit/cuda/fake/fake_cuda.h"
#include "test/unit/cuda/fake/fake_modules.h"
#include "test/unit/cuda/fake/fake_streams.h"
#include <cstdlib>
#include <cstring>
#include <map>

namespace fake {

struct Function {
  FakeKernel kernel;
  std::string name;
};
struct GraphExec {
  std::vector<Operation> operations;
};

struct State {
  std::mutex lock;
  std::map<std::string, Function> functions;
  std::map<unsigned long long, size_t> allocations; // device memory
  std::map<unsigned long long, size_t> pinned;
  size_t memory = size_t(1) << 32, used = 0;
  std::string failing, refused;
  int failure = 0, refusal = 0, graphLaunches = 0;
};
State &state() {
  static auto *made = new State; // streams' threads may outlive statics
  return *made;
}

// Whether [address, address + bytes) lies within one allocation.
bool inside(unsigned long long address, size_t bytes) {
  State &s = state();
  std::lock_guard guard(s.lock);
  for (const auto *map : {&s.allocations, &s.pinned}) {
    auto after = map->upper_bound(address);
    if (after == map->begin()) continue;
    --after;
    if (address + bytes <= after->first + after->second) return true;
  }
  return false;
}

bool knows(const std::string &kernel) {
  std::lock_guard guard(state().lock);
  return state().functions.contains(kernel);
}

int allocate(unsigned long long *address, size_t bytes) {
  State &s = state();
  std::lock_guard guard(s.lock);
  if (s.used + bytes > s.memory) return 2;
  void *made = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(made, 0xff, bytes); // NaNs, until it is written
  *address = reinterpret_cast<unsigned long long>(made);
  s.allocations[*address] = bytes;
  s.used += bytes;
  return 0;
}
int release(unsigned long long address) {
  State &s = state();
  std::lock_guard guard(s.lock);
  auto found = s.allocations.find(address);
  if (found == s.allocations.end()) return 1;
  s.used -= found->second;
  s.allocations.erase(found);
  std::free(reinterpret_cast<void *>(address));
  return 0;
}
void *at(unsigned long long address) { return reinterpret_cast<void *>(address); }

} // namespace fake

using namespace fake;
using Address = unsigned long long;

extern "C" {
void fake_cuda_kernel(const FakeKernel *kernel) {
  std::lock_guard guard(state().lock);
  Function &function = state().functions[kernel->name];
  function = {*kernel, kernel->name};
  function.kernel.name = function.name.c_str();
}
void fake_cuda_memory(unsigned long long bytes) { state().memory = bytes; }
void fake_cuda_fail(const char *kernel, int error) { state().failing = kernel, state().failure = error; }
void fake_cuda_refuse(const char *kernel, int error) { state().refused = kernel, state().refusal = error; }
void fake_cuda_hang(const char *kernel) { setHanging(kernel); }
int fake_cuda_graph_launches() { return state().graphLaunches; }
unsigned long long fake_cuda_allocated() { return state().used; }
void fake_cuda_reset() {
  setHanging("");
  clearError();
  fake_blas_epilogues(true);
  State &s = state();
  s.failing.clear(), s.refused.clear();
  s.memory = size_t(1) << 32;
  s.graphLaunches = 0;
}

int cuInit(unsigned) { return 0; }
int cuGetErrorName(int error, const char **name) {
  *name = error == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
                         : "CUDA_ERROR_OTHER";
  return 0;
}
int cuGetErrorString(int, const char **text) { return *text = "as the fake driver has it", 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal == 0 ? 0 : 101; }
int cuDeviceGetName(char *name, int length, int) { return std::strncpy(name, "Fake GPU", size_t(length)), 0; }
int cuDeviceGetAttribute(int *value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 102 ? 1 : attribute == 97 ? 232448 : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int) { return *context = &state(), 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void *context) { return context == &state() ? 0 : 201; }
int cuMemGetInfo_v2(size_t *free, size_t *total) {
  return *total = state().memory, *free = state().memory - state().used, 0;
}
int cuMemAlloc_v2(Address *address, size_t bytes) { return allocate(address, bytes); }
int cuMemFree_v2(Address address) { return release(address); }
// Virtual memory: what is reserved is the host's memory already; creating counts against what the GPU has.
int cuMemAddressReserve(Address *address, size_t bytes, size_t, Address, unsigned long long) {
  size_t most = state().memory, used = state().used;
  state().memory = size_t(1) << 40;
  int error = allocate(address, bytes);
  state().memory = most, state().used = used;
  return error;
}
int cuMemAddressFree(Address address, size_t bytes) {
  state().used += bytes;
  return release(address);
}
int cuMemCreate(unsigned long long *handle, size_t bytes, const void *, unsigned long long) {
  if (state().used + bytes > state().memory) return 2;
  state().used += bytes;
  *handle = bytes;
  return 0;
}
int cuMemRelease(unsigned long long handle) { return state().used -= handle, 0; }
int cuMemMap(Address, size_t bytes, size_t, unsigned long long handle, unsigned long long) {
  return bytes == handle ? 0 : 1;
}
int cuMemUnmap(Address, size_t) { return 0; }
int cuMemSetAccess(Address, size_t, const void *, size_t) { return 0; }
int cuMemGetAllocationGranularity(size_t *granularity, const void *, int) { return *granularity = 4096, 0; }
int cuMemHostAlloc(void **pointer, size_t bytes, unsigned) {
  *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::lock_guard guard(state().lock);
  state().pinned[reinterpret_cast<Address>(*pointer)] = bytes;
  return 0;
}
int cuMemFreeHost(void *pointer) {
  std::lock_guard guard(state().lock);
  if (!state().pinned.erase(reinterpret_cast<Address>(pointer))) return 1;
  std::free(pointer);
  return 0;
}
int cuMemcpyAsync(Address target, Address source, size_t bytes, Stream *stream) {
  if (!inside(target, bytes) || !inside(source, bytes)) return 1;
  return enqueue(stream, [=] { std::memmove(at(target), at(source), bytes); });
}
struct Copy2d {
  size_t sourceX, sourceY;
  int sourceType;
  const void *sourceHost;
  Address source;
  void *sourceArray;
  size_t sourcePitch, targetX, targetY;
  int targetType;
  void *targetHost;
  Address target;
  void *targetArray;
  size_t targetPitch, width, height;
};
int cuMemcpy2DAsync_v2(const Copy2d *given, Stream *stream) {
  Copy2d c = *given;
  if (c.sourceType != 2 || c.targetType != 2 || c.sourcePitch < c.width || c.targetPitch < c.width) return 1;
  if (!inside(c.source, c.sourcePitch * (c.height - 1) + c.width)) return 1;
  if (!inside(c.target, c.targetPitch * (c.height - 1) + c.width)) return 1;
  return enqueue(stream, [c] {
    for (size_t row = 0; row < c.height; ++row)
      std::memmove(at(c.target + row * c.targetPitch), at(c.source + row * c.sourcePitch), c.width);
  });
}
int cuMemsetD8Async(Address target, unsigned char value, size_t count, Stream *stream) {
  if (!inside(target, count)) return 1;
  return enqueue(stream, [=] { std::memset(at(target), value, count); });
}
int cuMemsetD32Async(Address target, unsigned value, size_t count, Stream *stream) {
  if (!inside(target, 4 * count)) return 1;
  return enqueue(stream, [=] {
    for (size_t i = 0; i < count; ++i) std::memcpy(at(target + 4 * i), &value, 4);
  });
}
int cuModuleLoadDataEx(void **module, const void *image, unsigned, int *, void **) {
  return *module = const_cast<void *>(image), loadModule(image) ? 0 : 200;
}
int cuModuleUnload(void *) { return 0; }
int cuModuleGetFunction(Function **function, void *, const char *name) {
  std::lock_guard guard(state().lock);
  auto found = state().functions.find(name);
  if (found == state().functions.end()) return 500;
  return *function = &found->second, 0;
}
int cuFuncSetAttribute(Function *, int, int) { return 0; }
int cuLaunchKernel(Function *function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                   unsigned, Stream *stream, void **parameters, void **) {
  State &s = state();
  if (function->name == s.refused) return s.refusal;
  std::vector<unsigned long long> values;
  for (int i = 0; i < function->kernel.parameters; ++i) {
    unsigned long long value = 0;
    std::memcpy(&value, parameters[i], sizeof value);
    values.push_back(value);
  }
  FakeKernel kernel = function->kernel;
  return enqueue(stream, [=, name = function->name] {
    waitWhileHanging(name);
    if (state().failing == name) setError(state().failure);
    kernel.run(values.data(), blocks, threads, kernel.context);
  });
}
int cuStreamCreate(Stream **stream, unsigned flags) { return *stream = makeStream(), flags == 1 ? 0 : 1; }
int cuStreamDestroy_v2(Stream *stream) { return destroyStream(stream); }
int cuStreamSynchronize(Stream *stream) { return synchronize(stream); }
int cuStreamQuery(Stream *stream) { return query(stream); }
int cuStreamWaitEvent(Stream *stream, Event *event, unsigned) { return waitEvent(stream, event); }
int cuEventCreate(Event **event, unsigned) { return *event = makeEvent(), 0; }
int cuEventDestroy_v2(Event *event) { return destroyEvent(event); }
int cuEventRecord(Event *event, Stream *stream) { return recordEvent(event, stream); }
int cuEventQuery(Event *event) { return queryEvent(event); }
int cuEventElapsedTime(float *milliseconds, Event *begin, Event *end) { return elapsedTime(milliseconds, begin, end); }
int cuStreamBeginCapture_v2(Stream *stream, int) { return beginCapture(stream); }
int cuStreamEndCapture(Stream *stream, std::vector<Operation> **graph) {
  *graph = new std::vector<Operation>;
  return endCapture(stream, **graph);
}
int cuGraphInstantiateWithFlags(GraphExec **executable, std::vector<Operation> *graph, unsigned long long) {
  return *executable = new GraphExec{*graph}, 0;
}
int cuGraphDestroy(std::vector<Operation> *graph) { return delete graph, 0; }
int cuGraphExecDestroy(GraphExec *executable) { return delete executable, 0; }
int cuGraphLaunch(GraphExec *executable, Stream *stream) {
  ++state().graphLaunches;
  return launchGraph(executable->operations, stream);
}
}
