// Convolutions by cuDNN's backend interface: tensors, the convolution and its operation make a graph, heuristics give
// engine configurations for it, the first that makes a plan is kept.
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/library_workspace.h"
#include <fmt/format.h>

namespace cleave::runtime::cuda {
namespace {

int dnnType(plan::DType dtype) {
  switch (dtype) {
  case plan::F32:
    return dnnFloat;
  case plan::F64:
    return dnnDouble;
  case plan::F16:
    return dnnHalf;
  case plan::BF16:
    return dnnBfloat16;
  default:
    return -1;
  }
}

class Convolve final : public PreparedCommand {
public:
  Convolve(CudaDevice &device, int lane)
      : device(device), dnn(*device.gpu().dnn), handle(device.gpu().dnnHandle), stream(device.stream(lane)) {}
  ~Convolve() override {
    for (auto descriptor = made.rbegin(); descriptor != made.rend(); ++descriptor) dnn.destroyDescriptor(*descriptor);
  }

  Status run() override {
    if (!pack) CLEAVE_RETURN_IF_ERROR(bind()); // the workspace has its address now
    int error = dnn.setStream(handle, stream);
    if (!error) error = dnn.execute(handle, plan, pack);
    return dnnStatus(dnn, error, "a convolution does not start");
  }

  Status build(const plan::Convolution &c);

private:
  Result<DnnDescriptor> descriptor(int type) {
    DnnDescriptor descriptor = nullptr;
    CLEAVE_RETURN_IF_ERROR(dnnStatus(dnn, dnn.createDescriptor(type, &descriptor), "cannot make a descriptor"));
    made.push_back(descriptor);
    return descriptor;
  }
  template <typename Value> Status set(DnnDescriptor to, int attribute, int type, const std::vector<Value> &values) {
    return dnnStatus(dnn, dnn.set(to, attribute, type, static_cast<int64_t>(values.size()), values.data()),
                     "cannot describe a convolution");
  }
  Status finalize(DnnDescriptor descriptor, const char *doing) {
    return dnnStatus(dnn, dnn.finalize(descriptor), doing);
  }
  Result<DnnDescriptor> tensor(const plan::Buffer &buffer, int64_t id);
  Status choose(DnnDescriptor graph, bool mayRound);
  Result<bool> rounds(DnnDescriptor configuration);
  Status bind();

  CudaDevice &device;
  const Cudnn &dnn;
  DnnHandle handle;
  Stream stream;
  std::vector<DnnDescriptor> made;
  DnnDescriptor plan = nullptr, pack = nullptr;
  std::vector<void *> pointers; // of tensors 1, 2, 3
  int64_t workspaceBytes = 0;
};

Result<DnnDescriptor> Convolve::tensor(const plan::Buffer &buffer, int64_t id) {
  Result<DnnDescriptor> made = descriptor(dnnTensor);
  if (!made) return made;
  std::vector<int64_t> sizes(buffer.shape().begin(), buffer.shape().end()), strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  int type = dnnType(buffer.dtype());
  if (type < 0) return inputError(fmt::format("cuDNN convolves no {}", plan::DType_Name(buffer.dtype())));
  // A width of one element is two-dimensional to the library.
  if (sizes.size() == 3) sizes.push_back(1), strides.push_back(1);
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorDataType, dnnTypeDataType, std::vector{type}));
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorDimensions, dnnTypeInt64, sizes));
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorStrides, dnnTypeInt64, strides));
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorUniqueId, dnnTypeInt64, std::vector{id}));
  Address address = device.at(buffer);
  auto alignment = static_cast<int64_t>(std::min<Address>(address & -address, 16));
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnTensorAlignment, dnnTypeInt64, std::vector{alignment}));
  CLEAVE_RETURN_IF_ERROR(finalize(*made, "cuDNN refuses a tensor"));
  pointers.push_back(reinterpret_cast<void *>(address));
  return made;
}

Status Convolve::build(const plan::Convolution &c) {
  Result<DnnDescriptor> weight = tensor(c.weight(), 1), input = tensor(c.input(), 2), output = tensor(c.output(), 3);
  for (const Result<DnnDescriptor> *one : {&weight, &input, &output})
    if (!*one) return one->status();
  Result<DnnDescriptor> convolution = descriptor(dnnConvolution);
  if (!convolution) return convolution.status();
  bool wide = c.output().dtype() == plan::F64;
  auto padded = [&](const auto &values, int64_t missing) {
    std::vector<int64_t> all(values.begin(), values.end());
    if (c.input().shape_size() == 3) all.push_back(missing);
    return all;
  };
  std::vector<int64_t> strides = padded(c.strides(), 1);
  CLEAVE_RETURN_IF_ERROR(
      set(*convolution, dnnConvolutionComputeType, dnnTypeDataType, std::vector{int(wide ? dnnDouble : dnnFloat)}));
  CLEAVE_RETURN_IF_ERROR(
      set(*convolution, dnnConvolutionMode, dnnTypeConvolutionMode, std::vector{int(dnnCrossCorrelation)}));
  CLEAVE_RETURN_IF_ERROR(
      set(*convolution, dnnConvolutionSpatialDims, dnnTypeInt64, std::vector{static_cast<int64_t>(strides.size())}));
  CLEAVE_RETURN_IF_ERROR(set(*convolution, dnnConvolutionStrides, dnnTypeInt64, strides));
  CLEAVE_RETURN_IF_ERROR(set(*convolution, dnnConvolutionDilations, dnnTypeInt64, padded(c.dilations(), 1)));
  CLEAVE_RETURN_IF_ERROR(set(*convolution, dnnConvolutionPrePaddings, dnnTypeInt64, padded(c.pads_begin(), 0)));
  CLEAVE_RETURN_IF_ERROR(set(*convolution, dnnConvolutionPostPaddings, dnnTypeInt64, padded(c.pads_end(), 0)));
  CLEAVE_RETURN_IF_ERROR(finalize(*convolution, "cuDNN refuses the convolution"));

  // The three operations name their attributes in one order; the groups follow from the tensors' channels.
  int kind = c.pass() == plan::Convolution::FORWARD      ? dnnConvolutionForward
             : c.pass() == plan::Convolution::GRAD_INPUT ? dnnConvolutionBackwardData
                                                         : dnnConvolutionBackwardFilter;
  int attribute = c.pass() == plan::Convolution::FORWARD      ? dnnForwardAlpha
                  : c.pass() == plan::Convolution::GRAD_INPUT ? dnnBackwardDataAlpha
                                                              : dnnBackwardFilterAlpha;
  Result<DnnDescriptor> operation = descriptor(kind);
  if (!operation) return operation.status();
  for (double scale : {1.0, 0.0})
    CLEAVE_RETURN_IF_ERROR(wide ? set(*operation, attribute++, dnnTypeDouble, std::vector{scale})
                                : set(*operation, attribute++, dnnTypeFloat, std::vector{static_cast<float>(scale)}));
  for (DnnDescriptor part : {*convolution, *weight, *input, *output})
    CLEAVE_RETURN_IF_ERROR(set(*operation, attribute++, dnnTypeDescriptor, std::vector{part}));
  CLEAVE_RETURN_IF_ERROR(finalize(*operation, "cuDNN refuses the convolution's operands"));
  Result<DnnDescriptor> graph = descriptor(dnnOperationGraph);
  if (!graph) return graph.status();
  CLEAVE_RETURN_IF_ERROR(set(*graph, dnnGraphOperations, dnnTypeDescriptor, std::vector{*operation}));
  CLEAVE_RETURN_IF_ERROR(set(*graph, dnnGraphHandle, dnnTypeHandle, std::vector{handle}));
  CLEAVE_RETURN_IF_ERROR(finalize(*graph, "cuDNN refuses the convolution's graph"));
  return choose(*graph, device.gpu().tf32 || c.input().dtype() != plan::F32);
}

// Does the engine compute fp32 with fewer bits? Tensor cores do: of fp32 they know TF32 only.
Result<bool> Convolve::rounds(DnnDescriptor configuration) {
  Result<DnnDescriptor> engine = descriptor(dnnEngine);
  if (!engine) return engine.status();
  int64_t count = 0;
  DnnDescriptor found = *engine;
  int error = dnn.get(configuration, dnnConfigurationEngine, dnnTypeDescriptor, 1, &count, &found);
  std::array<int, dnnNoteCount> notes{};
  if (!error) error = dnn.get(found, dnnEngineNotes, dnnTypeNumericalNote, dnnNoteCount, &count, notes.data());
  CLEAVE_RETURN_IF_ERROR(dnnStatus(dnn, error, "cannot ask how an engine computes"));
  return std::any_of(notes.begin(), notes.begin() + std::min<int64_t>(count, dnnNoteCount),
                     [](int note) { return note == dnnNoteTensorCore || note == dnnNoteNarrowInputs; });
}

// The first engine, best first, that keeps to the precision and to the workspace.
Status Convolve::choose(DnnDescriptor graph, bool mayRound) {
  Status last = runError("cuDNN knows no engine for the convolution");
  for (int mode : {dnnModeA, dnnModeFallback}) {
    Result<DnnDescriptor> heuristic = descriptor(dnnEngineHeuristic);
    if (!heuristic) return heuristic.status();
    CLEAVE_RETURN_IF_ERROR(set(*heuristic, dnnHeuristicGraph, dnnTypeDescriptor, std::vector{graph}));
    CLEAVE_RETURN_IF_ERROR(set(*heuristic, dnnHeuristicMode, dnnTypeHeuristicMode, std::vector{mode}));
    if (Status status = finalize(*heuristic, "cuDNN has no heuristic for the convolution"); !status) {
      last = status;
      continue;
    }
    constexpr int64_t most = 32;
    std::vector<DnnDescriptor> configurations;
    for (int64_t i = 0; i < most; ++i) {
      Result<DnnDescriptor> configuration = descriptor(dnnEngineConfiguration);
      if (!configuration) return configuration.status();
      configurations.push_back(*configuration);
    }
    int64_t found = 0;
    if (dnn.get(*heuristic, dnnHeuristicResults, dnnTypeDescriptor, most, &found, configurations.data())) continue;
    for (int64_t i = 0; i < std::min(found, most); ++i) {
      if (!mayRound) {
        Result<bool> narrow = rounds(configurations[static_cast<size_t>(i)]);
        if (!narrow) return narrow.status();
        if (*narrow) continue;
      }
      Result<DnnDescriptor> candidate = descriptor(dnnExecutionPlan);
      if (!candidate) return candidate.status();
      CLEAVE_RETURN_IF_ERROR(set(*candidate, dnnPlanHandle, dnnTypeHandle, std::vector{handle}));
      CLEAVE_RETURN_IF_ERROR(set(*candidate, dnnPlanConfiguration, dnnTypeDescriptor,
                                 std::vector{configurations[static_cast<size_t>(i)]}));
      if (Status status = finalize(*candidate, "cuDNN makes no plan for the convolution"); !status) {
        last = status;
        continue;
      }
      int64_t count = 0;
      CLEAVE_RETURN_IF_ERROR(dnnStatus(dnn,
                                       dnn.get(*candidate, dnnPlanWorkspace, dnnTypeInt64, 1, &count, &workspaceBytes),
                                       "cannot ask for a convolution's workspace"));
      if (workspaceBytes > convolutionWorkspace) {
        last = runError(fmt::format("cuDNN's engines for the convolution want more than {} MiB of workspace",
                                    convolutionWorkspace >> 20));
        continue;
      }
      plan = *candidate;
      device.needWorkspace(static_cast<size_t>(workspaceBytes));
      return Status::ok();
    }
  }
  return last;
}

Status Convolve::bind() {
  Result<DnnDescriptor> made = descriptor(dnnVariantPack);
  if (!made) return made.status();
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnPackUniqueIds, dnnTypeInt64, std::vector<int64_t>{1, 2, 3}));
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnPackPointers, dnnTypeVoidPointer, pointers));
  void *scratch = workspaceBytes ? reinterpret_cast<void *>(device.workspaceMemory().address()) : nullptr;
  CLEAVE_RETURN_IF_ERROR(set(*made, dnnPackWorkspace, dnnTypeVoidPointer, std::vector{scratch}));
  CLEAVE_RETURN_IF_ERROR(finalize(*made, "cuDNN refuses the convolution's addresses"));
  pack = *made;
  return Status::ok();
}

} // namespace

Result<Prepared> prepareConvolution(const plan::Convolution &command, CudaDevice &device, int lane) {
  CLEAVE_RETURN_IF_ERROR(device.gpu().needDnn());
  auto convolve = std::make_unique<Convolve>(device, lane);
  CLEAVE_RETURN_IF_ERROR(convolve->build(command));
  return Prepared(std::move(convolve));
}

} // namespace cleave::runtime::cuda
