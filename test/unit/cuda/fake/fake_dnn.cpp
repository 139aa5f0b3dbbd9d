// cuDNN's graph API: a convolution and its two gradients in plain loops, and graphs of products, pointwise operations,
// reductions and reshapes (dnn_interpreter.h). A heuristic gives three engines: one on tensor cores, which rounds fp32,
// one that wants a gigabyte of workspace, and a plain one. As cuDNN's do, those of 16 bits want room for a copy of
// every activation that has its channels first, to turn it round. Where FAKE_CUDNN_REAL names the real library, tensors
// and operations are described to that, too, which needs no GPU for it and refuses what is no such operation; and an
// H100's properties, for which it says whether it knows engines. With FAKE_CUDNN_PLANS the heuristic's engines are the
// real one's, with their notes and their workspace, compiled for that H100; what they compute are the fake's loops.
#include "runtime/engine/device/cuda/api/cudnn.h"
#include "test/unit/cuda/fake/dnn_interpreter.h"
#include "test/unit/cuda/fake/fake_streams.h"
#include "test/unit/cuda/fake/numbers.h"
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <set>
#include <vector>

using namespace cleave::runtime::cuda;
using fake::Descriptor;

namespace {

// The real library's descriptors beside the fake's.
struct Real {
  int (*create)(int, void **) = nullptr;
  int (*destroy)(void *) = nullptr;
  int (*set)(void *, int, int, int64_t, const void *) = nullptr;
  int (*finalize)(void *) = nullptr;
  int (*get)(void *, int, int, int64_t, int64_t *, void *) = nullptr;
  void *device = nullptr; // an H100's properties, for which engines are looked
  bool plans = false;     // FAKE_CUDNN_PLANS
  std::map<const Descriptor *, void *> known;
  std::mutex lock;

  Real() {
    const char *path = std::getenv("FAKE_CUDNN_REAL");
    void *library = path ? ::dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (path && !library) std::fprintf(stderr, "fake cuDNN: %s\n", ::dlerror());
    if (!library) return;
    auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    };
    find(create, "cudnnBackendCreateDescriptor"), find(destroy, "cudnnBackendDestroyDescriptor");
    find(set, "cudnnBackendSetAttribute"), find(finalize, "cudnnBackendFinalize");
    find(get, "cudnnBackendGetAttribute");
    static const char text[] =
        R"({"deviceVer":900,"driverVer":13000,"cudaDeviceId":0,"totalGlobalMem":85017755648,"warpSize":32,
            "maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,
            "multiProcessorCount":132,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,
            "reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,
            "maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,
            "memoryBusWidth":5120,"oversizedSharedMemoryPerBlock":232448,"smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":52428800,
            "deviceName":"NVIDIA H100 80GB HBM3"})";
    constexpr int kind = 38, json = 2702,
                  characters = 24; // CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, its text, CUDNN_TYPE_CHAR
    if (create(kind, &device) || set(device, json, characters, sizeof text, text) || finalize(device)) {
      std::fprintf(stderr, "fake cuDNN: the real one knows no GPU by its properties\n");
      device = nullptr;
    }
    plans = device && std::getenv("FAKE_CUDNN_PLANS");
  }
  int check(int error, const char *what, const Descriptor *d, int name = -1) const {
    if (error)
      std::fprintf(stderr, "cuDNN: %s: error %d for a descriptor of kind %d, attribute %d\n", what, error, d->kind,
                   name);
    return error;
  }
  int added(const Descriptor *d) {
    static const std::set<int> kinds{dnnTensor,
                                     dnnConvolution,
                                     dnnConvolutionForward,
                                     dnnPointwise,
                                     dnnConvolutionBackwardData,
                                     dnnConvolutionBackwardFilter,
                                     dnnMatmul,
                                     dnnPointwiseOperation,
                                     dnnMatmulOperation,
                                     dnnOperationGraph,
                                     dnnEngineHeuristic,
                                     dnnReduction,
                                     dnnReductionOperation,
                                     dnnReshapeOperation};
    static const std::set<int> ofPlans{dnnEngineConfiguration, dnnEngine, dnnExecutionPlan};
    if (!create || !(kinds.contains(d->kind) || (plans && ofPlans.contains(d->kind)))) return 0;
    if (!device && (d->kind == dnnOperationGraph || d->kind == dnnEngineHeuristic)) return 0;
    void *made = nullptr;
    int error = create(d->kind, &made);
    std::lock_guard guard(lock);
    known[d] = made;
    return check(error, "create", d);
  }
  void *of(const Descriptor *d) {
    std::lock_guard guard(lock);
    auto found = known.find(d);
    return found == known.end() ? nullptr : found->second;
  }
  int told(const Descriptor *d, int name, int type, int64_t count, const void *elements) {
    void *own = of(d);
    if (!own || name == dnnGraphHandle || (d->kind == dnnExecutionPlan && name == dnnPlanHandle)) return 0;
    std::vector<void *> descriptors;
    if (type == dnnTypeDescriptor) {
      for (int64_t i = 0; i < count; ++i) descriptors.push_back(of(static_cast<Descriptor *const *>(elements)[i]));
      elements = descriptors.data();
    }
    return check(set(own, name, type, count, elements), "set", d, name);
  }
  int finalized(const Descriptor *d) {
    void *own = of(d);
    if (!own) return 0;
    constexpr int heuristicDevice = 204; // CUDNN_ATTR_ENGINEHEUR_DEVICEPROP
    if (d->kind == dnnEngineHeuristic) {
      int error = set(own, heuristicDevice, dnnTypeDescriptor, 1, &device);
      if (!error) error = finalize(own);
      return check(error, "no engine on an H100", d);
    }
    if (d->kind == dnnExecutionPlan) {
      constexpr int planDevice = 407; // CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP
      // CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER: its kernel was compiled, and could not be loaded. Engines that
      // compile as they are needed look for a libcuda.so.1 (LD_LIBRARY_PATH): one that has no GPU, ../driverless.
      constexpr int compiledOnly = 5001;
      int error = set(own, planDevice, dnnTypeDescriptor, 1, &device);
      if (!error) error = finalize(own);
      return error == compiledOnly ? 0 : error;
    }
    return check(finalize(own), "finalize", d);
  }
  // The real one's answer, into descriptors that are the fake's.
  int asked(const Descriptor *d, int name, int type, int64_t most, int64_t *count, void *elements) {
    if (type != dnnTypeDescriptor) return get(of(d), name, type, most, count, elements);
    std::vector<void *> own;
    for (int64_t i = 0; i < most; ++i) own.push_back(of(static_cast<Descriptor *const *>(elements)[i]));
    return get(of(d), name, type, most, count, own.data());
  }
  void removed(const Descriptor *d) {
    void *own = of(d);
    if (!own) return;
    destroy(own);
    std::lock_guard guard(lock);
    known.erase(d);
  }
};
Real &real() {
  static auto *made = new Real;
  return *made;
}

struct Handle {
  fake::Stream *stream = nullptr;
  int device = fake::currentDevice;
};

constexpr int64_t workspaces[] = {2048, int64_t(1) << 30, 4096}; // by engine
constexpr int plainEngine = 2;

int sizeOf(int type) {
  return type == dnnTypeDataType || type == dnnTypeConvolutionMode || type == dnnTypeHeuristicMode ||
                 type == dnnTypeFloat || type == dnnTypeNumericalNote || type == dnnTypePointwiseMode ||
                 type == dnnTypeReductionOperator
             ? 4
         : type == dnnTypeBoolean ? 1
                                  : 8;
}

struct Tensor {
  fake::Number type;
  std::vector<int64_t> sizes, strides;
  int64_t id;
  explicit Tensor(const Descriptor &d)
      : sizes(d.all<int64_t>(dnnTensorDimensions)), strides(d.all<int64_t>(dnnTensorStrides)),
        id(d.one<int64_t>(dnnTensorUniqueId)) {
    int dtype = d.one<int>(dnnTensorDataType);
    type = dtype == dnnFloat    ? fake::Number::F32
           : dtype == dnnDouble ? fake::Number::F64
           : dtype == dnnHalf   ? fake::Number::F16
                                : fake::Number::Bf16;
  }
  int64_t count() const {
    int64_t all = 1;
    for (int64_t size : sizes) all *= size;
    return all;
  }
  // The place of a position, -1 outside.
  int64_t place(const std::vector<int64_t> &at) const {
    int64_t offset = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      if (at[d] < 0 || at[d] >= sizes[d]) return -1;
      offset += at[d] * strides[d];
    }
    return offset;
  }
};

// Every (output element, weight element) pair that meets: visits the places in x, w and y.
template <typename Visit>
void meet(const Descriptor &c, const Tensor &x, const Tensor &w, const Tensor &y, Visit visit) {
  auto strides = c.all<int64_t>(dnnConvolutionStrides), dilations = c.all<int64_t>(dnnConvolutionDilations),
       pads = c.all<int64_t>(dnnConvolutionPrePaddings);
  size_t spatial = strides.size();
  int64_t groups = x.sizes[1] / w.sizes[1], outOfGroup = y.sizes[1] / groups;
  std::vector<int64_t> atY(spatial + 2), atW(spatial + 2), atX(spatial + 2);
  for (int64_t i = 0; i < y.count(); ++i) {
    int64_t rest = i;
    for (size_t d = spatial + 2; d-- > 0; rest /= y.sizes[d]) atY[d] = rest % y.sizes[d];
    for (int64_t j = 0; j < w.count() / w.sizes[0]; ++j) {
      rest = j;
      for (size_t d = spatial + 2; d-- > 1; rest /= w.sizes[d]) atW[d] = rest % w.sizes[d];
      atW[0] = atY[1], atX[0] = atY[0], atX[1] = atY[1] / outOfGroup * w.sizes[1] + atW[1];
      for (size_t d = 0; d < spatial; ++d) atX[d + 2] = atY[d + 2] * strides[d] - pads[d] + atW[d + 2] * dilations[d];
      int64_t place = x.place(atX);
      if (place >= 0) visit(place, w.place(atW), y.place(atY));
    }
  }
}

void convolve(const Descriptor &operation, std::map<int64_t, void *> memory) {
  int first = operation.kind == dnnConvolutionForward        ? dnnForwardAlpha
              : operation.kind == dnnConvolutionBackwardData ? dnnBackwardDataAlpha
                                                             : dnnBackwardFilterAlpha;
  const Descriptor &convolution = *operation.one<Descriptor *>(first + 2);
  Tensor w(*operation.one<Descriptor *>(first + 3)), x(*operation.one<Descriptor *>(first + 4)),
      y(*operation.one<Descriptor *>(first + 5));
  const Tensor &target = operation.kind == dnnConvolutionForward        ? y
                         : operation.kind == dnnConvolutionBackwardData ? x
                                                                        : w;
  std::vector<double> sums(static_cast<size_t>(target.count()));
  auto at = [&](const Tensor &tensor, int64_t place) { return fake::load(tensor.type, memory.at(tensor.id), place); };
  meet(convolution, x, w, y, [&](int64_t inX, int64_t inW, int64_t inY) {
    if (&target == &y)
      sums[static_cast<size_t>(inY)] += at(x, inX) * at(w, inW);
    else if (&target == &x)
      sums[static_cast<size_t>(inX)] += at(y, inY) * at(w, inW);
    else
      sums[static_cast<size_t>(inW)] += at(y, inY) * at(x, inX);
  });
  for (size_t i = 0; i < sums.size(); ++i)
    fake::store(target.type, memory.at(target.id), static_cast<int64_t>(i), sums[i]);
}

bool isConvolution(const Descriptor &operation) {
  return operation.kind == dnnConvolutionForward || operation.kind == dnnConvolutionBackwardData ||
         operation.kind == dnnConvolutionBackwardFilter;
}

// On tensor cores 16 bits are convolved with the channels last: other activations are copied so.
int64_t workspaceOf(const Descriptor &configuration) {
  int64_t bytes = workspaces[configuration.engine];
  const Descriptor &operation = *configuration.graph->all<Descriptor *>(dnnGraphOperations).front();
  if (configuration.engine == plainEngine || !isConvolution(operation)) return bytes;
  const int first = operation.kind == dnnConvolutionForward        ? dnnForwardAlpha
                    : operation.kind == dnnConvolutionBackwardData ? dnnBackwardDataAlpha
                                                                   : dnnBackwardFilterAlpha;
  for (int operand : {first + 4, first + 5}) {
    const Tensor tensor(*operation.one<Descriptor *>(operand));
    const bool isNarrow = tensor.type == fake::Number::F16 || tensor.type == fake::Number::Bf16;
    if (isNarrow && tensor.sizes[1] > 1 && tensor.strides[1] != 1) bytes += 2 * tensor.count();
  }
  return bytes;
}

} // namespace

extern "C" {
const char *cudnnGetErrorString(int) { return "not as the fake library wants it"; }
size_t cudnnGetVersion() { return 91900; }
int cudnnCreate(Handle **handle) { return *handle = new Handle, 0; }
int cudnnDestroy(Handle *handle) { return delete handle, 0; }
int cudnnSetStream(Handle *handle, fake::Stream *stream) {
  return handle->stream = stream, handle->device == fake::deviceOf(stream) ? 0 : 2000;
}
int cudnnBackendCreateDescriptor(int kind, Descriptor **made) {
  *made = new Descriptor{.kind = kind};
  return real().added(*made);
}
int cudnnBackendDestroyDescriptor(Descriptor *descriptor) {
  real().removed(descriptor);
  return delete descriptor, 0;
}
int cudnnBackendSetAttribute(Descriptor *d, int name, int type, int64_t count, const void *elements) {
  if (d->finalized) return 2000;
  const char *bytes = static_cast<const char *>(elements);
  d->attributes[name] = {type, {bytes, bytes + count * sizeOf(type)}};
  return real().told(d, name, type, count, elements);
}
int cudnnBackendGetAttribute(Descriptor *d, int name, int type, int64_t most, int64_t *count, void *elements) {
  if (!d->finalized && d->engine < 0) return 2000;
  if (d->kind == dnnEngineHeuristic && name == dnnHeuristicResults && type == dnnTypeDescriptor) {
    if (real().plans) {
      if (int error = real().asked(d, name, type, most, count, elements)) return error;
      for (int i = 0; i < *count && i < most; ++i) {
        Descriptor *configuration = static_cast<Descriptor **>(elements)[i];
        configuration->engine = plainEngine, configuration->graph = d->one<Descriptor *>(dnnHeuristicGraph);
      }
      return 0;
    }
    *count = d->one<int>(dnnHeuristicMode) == dnnModeA ? 3 : 0;
    for (int i = 0; i < *count && i < most; ++i) {
      Descriptor *configuration = static_cast<Descriptor **>(elements)[i];
      configuration->engine = i;
      configuration->graph = d->one<Descriptor *>(dnnHeuristicGraph);
    }
    return 0;
  }
  if (d->kind == dnnEngineConfiguration && name == dnnConfigurationEngine && type == dnnTypeDescriptor) {
    (*static_cast<Descriptor **>(elements))->engine = d->engine;
    return real().plans ? real().asked(d, name, type, most, count, elements) : (*count = 1, 0);
  }
  if (d->kind == dnnEngine && name == dnnEngineNotes && type == dnnTypeNumericalNote) {
    if (real().plans) return real().asked(d, name, type, most, count, elements);
    *count = d->engine == 0;
    if (*count) *static_cast<int *>(elements) = dnnNoteTensorCore;
    return 0;
  }
  if (d->kind == dnnExecutionPlan && name == dnnPlanWorkspace && type == dnnTypeInt64) {
    if (real().plans) return real().asked(d, name, type, most, count, elements);
    *static_cast<int64_t *>(elements) = workspaceOf(*d->one<Descriptor *>(dnnPlanConfiguration));
    return *count = 1, 0;
  }
  return 2000;
}
int cudnnBackendFinalize(Descriptor *d) {
  d->finalized = true;
  if (int error = real().finalized(d)) return error;
  if (d->kind == dnnPointwiseOperation) { // numbers have as many dimensions as what they meet
    auto dims = [&](int name) {
      const Descriptor *tensor = d->attributes.contains(name) ? d->one<Descriptor *>(name) : nullptr;
      return tensor ? tensor->all<int64_t>(dnnTensorDimensions).size() : 0;
    };
    for (int name : {dnnPointwiseB, dnnPointwiseT, dnnPointwiseY})
      if (dims(name) && dims(name) != dims(dnnPointwiseX)) return 2000;
  }
  if (d->kind != dnnConvolution) return 0;
  size_t spatial = d->all<int64_t>(dnnConvolutionStrides).size();
  return spatial == static_cast<size_t>(d->one<int64_t>(dnnConvolutionSpatialDims)) && spatial >= 2 &&
                 d->all<int64_t>(dnnConvolutionDilations).size() == spatial &&
                 d->all<int64_t>(dnnConvolutionPrePaddings).size() == spatial &&
                 d->all<int64_t>(dnnConvolutionPostPaddings).size() == spatial
             ? 0
             : 2000;
}
int cudnnBackendExecute(Handle *handle, Descriptor *plan, Descriptor *pack) {
  const Descriptor *configuration = plan->one<Descriptor *>(dnnPlanConfiguration);
  if (!configuration || configuration->engine < 0 || !pack->finalized) return 2000;
  int64_t wanted = workspaceOf(*configuration), count = 0;
  if (real().plans && real().asked(plan, dnnPlanWorkspace, dnnTypeInt64, 1, &count, &wanted)) return 2000;
  if (wanted && !pack->one<void *>(dnnPackWorkspace)) return 3000;
  std::map<int64_t, void *> memory;
  auto ids = pack->all<int64_t>(dnnPackUniqueIds);
  auto pointers = pack->all<void *>(dnnPackPointers);
  for (size_t i = 0; i < ids.size() && i < pointers.size(); ++i) memory[ids[i]] = pointers[i];
  std::vector<Descriptor *> operations = configuration->graph->all<Descriptor *>(dnnGraphOperations);
  const Descriptor *first = operations.front();
  if (isConvolution(*first)) return fake::enqueue(handle->stream, [=] { convolve(*first, memory); });
  return fake::enqueue(handle->stream, [=] { fake::interpret(operations, memory); });
}
}
