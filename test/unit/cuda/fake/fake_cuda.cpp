#include "test/unit/cuda/fake/fake_cuda.h"
#include "test/unit/cuda/fake/fake_modules.h"
#include "test/unit/cuda/fake/fake_streams.h"
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>

namespace fake {

struct Function {
  FakeKernel kernel;
  std::string name;
};
struct Loaded { // a function of a module, which is of one GPU
  Function *function;
  int device;
};
struct Module {
  int device;
};
constexpr int mostGpus = 8;
int gpus() {
  const char *given = std::getenv("FAKE_CUDA_GPUS");
  return given ? std::atoi(given) : 1;
}
int mostEvents() { // at once
  const char *given = std::getenv("FAKE_CUDA_EVENTS");
  return given ? std::atoi(given) : 1 << 30;
}
struct GraphExec {
  std::vector<Operation> operations;
};

struct State {
  std::mutex lock;
  std::map<std::string, Function> functions;
  std::map<std::pair<std::string, int>, Loaded> loaded;
  int contexts[mostGpus] = {};
  std::map<unsigned long long, size_t> allocations; // device memory
  std::map<unsigned long long, unsigned> reaches;   // of virtual memory: a bit for each GPU that may touch it
  std::map<unsigned long long, std::pair<size_t, int>> physical; // by handle: bytes and GPU
  unsigned long long handles = 0;
  std::map<unsigned long long, size_t> pinned;
  size_t memory = size_t(1) << 32, used = 0;
  std::string failing, refused, refusedCaptured;
  int failure = 0, refusal = 0, captureRefusal = 0, graphLaunches = 0;
  bool exports = true;
  unsigned long long unexported = 0;
  std::atomic<int> events{0}, uploads{0}, capturedUploads{0};
};
State &state() {
  static auto *made = new State; // streams' threads may outlive statics
  return *made;
}

// Whether [address, address + bytes) lies within one allocation, which the current GPU may touch.
bool inside(unsigned long long address, size_t bytes) {
  State &s = state();
  std::lock_guard guard(s.lock);
  for (const auto *map : {&s.allocations, &s.pinned}) {
    auto after = map->upper_bound(address);
    if (after == map->begin()) continue;
    --after;
    if (address + bytes > after->first + after->second) continue;
    return map == &s.pinned || currentDevice < 0 || (s.reaches[after->first] >> currentDevice & 1);
  }
  return false;
}

bool isPinned(unsigned long long address) {
  State &s = state();
  std::lock_guard guard(s.lock);
  auto after = s.pinned.upper_bound(address);
  return after != s.pinned.begin() && address < std::prev(after)->first + std::prev(after)->second;
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
  s.reaches[*address] = currentDevice >= 0 ? 1U << currentDevice : 0;
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
void fake_cuda_refuse_captured(const char *kernel, int error) {
  state().refusedCaptured = kernel, state().captureRefusal = error;
}
void fake_cuda_exports(bool able) { state().exports = able; }
unsigned long long fake_cuda_unexported() { return state().unexported; }
void fake_cuda_hang(const char *kernel) { setHanging(kernel); }
void fake_cuda_depth(unsigned long long most) { setDepth(most); }
int fake_cuda_graph_launches() { return state().graphLaunches; }
unsigned long long fake_cuda_allocated() { return state().used; }
int fake_cuda_uploads() { return state().uploads; }
int fake_cuda_captured_uploads() { return state().capturedUploads; }
void fake_cuda_reset() {
  setHanging("");
  setDepth(SIZE_MAX);
  clearError();
  fake_blas_epilogues(0);
  State &s = state();
  s.failing.clear(), s.refused.clear(), s.refusedCaptured.clear();
  s.exports = true, s.unexported = 0;
  s.memory = size_t(1) << 32;
  s.graphLaunches = s.uploads = s.capturedUploads = 0;
}

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int *version) { return *version = 12080, 0; }
int cuGetErrorName(int error, const char **name) {
  *name = error == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
          : error == 900 ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
                         : "CUDA_ERROR_OTHER";
  return 0;
}
int cuGetErrorString(int, const char **text) { return *text = "as the fake driver has it", 0; }
int cuDeviceGetCount(int *count) { return *count = gpus(), 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal >= 0 && ordinal < gpus() ? 0 : 101; }
int cuDeviceGetName(char *name, int length, int) { return std::strncpy(name, "Fake GPU", size_t(length)), 0; }
int cuDeviceGetAttribute(int *value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 102 ? 1 : attribute == 97 ? 232448 : 0;
  if (attribute == 103 || attribute == 110) *value = state().exports;
  return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = state().memory, 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &state().contexts[device], 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void *context) {
  for (int i = 0; i < mostGpus; ++i)
    if (context == &state().contexts[i]) return currentDevice = i, 0;
  return 201;
}
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
  state().memory = most, state().used = used, state().reaches[*address] = 0;
  return error;
}
int cuMemAddressFree(Address address, size_t bytes) {
  state().used += bytes;
  return release(address);
}
struct Location {
  int type, id;
};
struct Properties {
  int type, handles;
  Location location;
  void *metadata;
  unsigned char compression, directAccess;
};
int cuMemCreate(unsigned long long *handle, size_t bytes, const Properties *properties, unsigned long long) {
  State &s = state();
  if (bytes % 4096 || properties->location.type != 1 || properties->handles & ~1) return 1;
  if ((properties->handles || properties->directAccess) && !s.exports) return 801; // not supported
  if (!properties->handles || !properties->directAccess) s.unexported += bytes;
  if (s.used + bytes > s.memory) return 2;
  s.used += bytes;
  s.physical[ *handle = ++s.handles] = {bytes, properties->location.id};
  return 0;
}
int cuMemRelease(unsigned long long handle) {
  auto found = state().physical.find(handle);
  if (found == state().physical.end()) return 400;
  state().used -= found->second.first;
  return state().physical.erase(found), 0;
}
int cuMemMap(Address, size_t bytes, size_t, unsigned long long handle, unsigned long long) {
  auto found = state().physical.find(handle);
  return found != state().physical.end() && bytes == found->second.first ? 0 : 1;
}
int cuMemUnmap(Address, size_t) { return 0; }
struct Access {
  Location location;
  int flags;
};
int cuMemSetAccess(Address address, size_t bytes, const Access *access, size_t count) {
  State &s = state();
  std::lock_guard guard(s.lock);
  if (!s.allocations.contains(address) || s.allocations[address] != bytes) return 1;
  for (size_t i = 0; i < count; ++i) s.reaches[address] |= 1U << access[i].location.id;
  return 0;
}
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
  bool isUpload = isPinned(source) && !isPinned(target);
  if (isUpload && isCapturing(stream)) ++state().capturedUploads;
  return enqueue(stream, [=] {
    std::memmove(at(target), at(source), bytes);
    state().uploads += isUpload;
  });
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
int cuModuleLoadDataEx(Module **module, const void *image, unsigned, int *, void **) {
  if (currentDevice < 0) return 201;
  return *module = new Module{currentDevice}, loadModule(image) ? 0 : 200;
}
int cuModuleUnload(Module *module) { return delete module, 0; }
int cuModuleGetFunction(Loaded **function, Module *module, const char *name) {
  State &s = state();
  std::lock_guard guard(s.lock);
  auto found = s.functions.find(name);
  if (found == s.functions.end()) return 500;
  Loaded &loaded = s.loaded[{name, module->device}];
  loaded = {&found->second, module->device};
  return *function = &loaded, 0;
}
int cuFuncSetAttribute(Loaded *, int, int) { return 0; }
int cuLaunchKernel(Loaded *loaded, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned,
                   Stream *stream, void **parameters, void **) {
  State &s = state();
  const Function *function = loaded->function;
  if (loaded->device != deviceOf(stream)) return 400;
  if (function->name == s.refused) return s.refusal;
  if (function->name == s.refusedCaptured && isCapturing(stream)) return s.captureRefusal;
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
int cuLaunchHostFunc(Stream *stream, void (*function)(void *), void *argument) {
  return enqueue(stream, [=] {
    if (!hasError()) function(argument); // as the driver: not in a context that has failed
  });
}
int cuEventCreate(Event **event, unsigned) {
  if (state().events >= mostEvents()) return 2; // out of memory
  ++state().events;
  return *event = makeEvent(), 0;
}
int cuEventDestroy_v2(Event *event) {
  --state().events;
  return destroyEvent(event);
}
int cuEventRecord(Event *event, Stream *stream) { return recordEvent(event, stream); }
int cuEventQuery(Event *event) { return queryEvent(event); }
int cuEventElapsedTime(float *milliseconds, Event *begin, Event *end) { return elapsedTime(milliseconds, begin, end); }
int cuStreamBeginCapture_v2(Stream *stream, int) {
  const char *given = std::getenv("FAKE_CUDA_CAPTURES");
  return given && *given == '0' ? 900 : beginCapture(stream); // unsupported
}
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
