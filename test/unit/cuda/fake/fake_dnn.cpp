// cuDNN's graph API: a convolution and its two gradients in plain loops, and graphs of products, pointwise operations,
// reductions and reshapes (dnn_interpreter.h). A heuristic gives three engines: one on tensor cores, which rounds fp32,
// one that wants a gigabyte of workspace, and a plain one.
#include "runtime/device/cuda/api/cudnn.h"
#include "test/unit/cuda/fake/dnn_interpreter.h"
#include "test/unit/cuda/fake/fake_streams.h"
#include "test/unit/cuda/fake/numbers.h"
#include <map>
#include <vector>

using namespace cleave::runtime::cuda;
using fake::Descriptor;

namespace {

struct Handle {
  fake::Stream *stream = nullptr;
  int device = fake::currentDevice;
};

constexpr int64_t workspaces[] = {2048, int64_t(1) << 30, 4096}; // by engine

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

} // namespace

extern "C" {
const char *cudnnGetErrorString(int) { return "not as the fake library wants it"; }
size_t cudnnGetVersion() { return 91900; }
int cudnnCreate(Handle **handle) { return *handle = new Handle, 0; }
int cudnnDestroy(Handle *handle) { return delete handle, 0; }
int cudnnSetStream(Handle *handle, fake::Stream *stream) {
  return handle->stream = stream, handle->device == fake::deviceOf(stream) ? 0 : 2000;
}
int cudnnBackendCreateDescriptor(int kind, Descriptor **made) { return *made = new Descriptor{.kind = kind}, 0; }
int cudnnBackendDestroyDescriptor(Descriptor *descriptor) { return delete descriptor, 0; }
int cudnnBackendSetAttribute(Descriptor *d, int name, int type, int64_t count, const void *elements) {
  if (d->finalized) return 2000;
  const char *bytes = static_cast<const char *>(elements);
  d->attributes[name] = {type, {bytes, bytes + count * sizeOf(type)}};
  return 0;
}
int cudnnBackendGetAttribute(Descriptor *d, int name, int type, int64_t most, int64_t *count, void *elements) {
  if (!d->finalized && d->engine < 0) return 2000;
  if (d->kind == dnnEngineHeuristic && name == dnnHeuristicResults && type == dnnTypeDescriptor) {
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
    return *count = 1, 0;
  }
  if (d->kind == dnnEngine && name == dnnEngineNotes && type == dnnTypeNumericalNote) {
    *count = d->engine == 0;
    if (*count) *static_cast<int *>(elements) = dnnNoteTensorCore;
    return 0;
  }
  if (d->kind == dnnExecutionPlan && name == dnnPlanWorkspace && type == dnnTypeInt64) {
    *static_cast<int64_t *>(elements) = workspaces[d->one<Descriptor *>(dnnPlanConfiguration)->engine];
    return *count = 1, 0;
  }
  return 2000;
}
int cudnnBackendFinalize(Descriptor *d) {
  d->finalized = true;
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
  if (workspaces[configuration->engine] && !pack->one<void *>(dnnPackWorkspace)) return 3000;
  std::map<int64_t, void *> memory;
  auto ids = pack->all<int64_t>(dnnPackUniqueIds);
  auto pointers = pack->all<void *>(dnnPackPointers);
  for (size_t i = 0; i < ids.size() && i < pointers.size(); ++i) memory[ids[i]] = pointers[i];
  std::vector<Descriptor *> operations = configuration->graph->all<Descriptor *>(dnnGraphOperations);
  const Descriptor *first = operations.front();
  if (first->kind == dnnConvolutionForward || first->kind == dnnConvolutionBackwardData ||
      first->kind == dnnConvolutionBackwardFilter)
    return fake::enqueue(handle->stream, [=] { convolve(*first, memory); });
  return fake::enqueue(handle->stream, [=] { fake::interpret(operations, memory); });
}
}
