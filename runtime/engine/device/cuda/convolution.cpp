// Convolutions by cuDNN's backend interface: tensors, the convolution and its operation make a graph (dnn_graph.h).
#include "runtime/engine/device/cuda/dnn_graph.h"
#include "runtime/plan/image_shape.h"
#include "runtime/plan/library_workspace.h"
#include <fmt/format.h>

namespace cleave::runtime::cuda {
namespace {

Result<DnnDescriptor> tensorOf(DnnGraph &graph, const plan::Buffer &buffer, bool isLast, const CudaDevice &device) {
  ImageShape shape = imageShape(buffer, isLast);
  DnnTensor tensor{
      .type = dnnType(buffer.dtype()), .sizes = std::move(shape.sizes), .strides = std::move(shape.strides)};
  if (tensor.type < 0) return inputError(fmt::format("cuDNN convolves no {}", plan::DType_Name(buffer.dtype())));
  // A width of one element is two-dimensional to the library.
  if (tensor.sizes.size() == 3) {
    tensor.strides.push_back(isLast ? tensor.sizes[1] : 1);
    tensor.sizes.push_back(1);
  }
  tensor.address = device.at(buffer);
  return graph.tensor(tensor);
}

Status describe(DnnGraph &graph, const plan::Convolution &c, const CudaDevice &device) {
  Result<DnnDescriptor> weight = tensorOf(graph, c.weight(), c.weight_channels_last(), device),
                        input = tensorOf(graph, c.input(), c.channels_last(), device),
                        output = tensorOf(graph, c.output(), c.channels_last(), device);
  for (const Result<DnnDescriptor> *one : {&weight, &input, &output})
    if (!*one) return one->status();
  CLEAVE_ASSIGN_OR_RETURN(DnnDescriptor convolution, graph.descriptor(dnnConvolution));
  bool wide = c.output().dtype() == plan::F64;
  auto padded = [&](const auto &values, int64_t missing) {
    std::vector<int64_t> all(values.begin(), values.end());
    if (c.input().shape_size() == 3) all.push_back(missing);
    return all;
  };
  std::vector<int64_t> strides = padded(c.strides(), 1);
  CLEAVE_RETURN_IF_ERROR(graph.set(convolution, dnnConvolutionComputeType, dnnTypeDataType,
                                   std::vector{int(wide ? dnnDouble : dnnFloat)}));
  CLEAVE_RETURN_IF_ERROR(
      graph.set(convolution, dnnConvolutionMode, dnnTypeConvolutionMode, std::vector{int(dnnCrossCorrelation)}));
  CLEAVE_RETURN_IF_ERROR(graph.set(convolution, dnnConvolutionSpatialDims, dnnTypeInt64,
                                   std::vector{static_cast<int64_t>(strides.size())}));
  CLEAVE_RETURN_IF_ERROR(graph.set(convolution, dnnConvolutionStrides, dnnTypeInt64, strides));
  CLEAVE_RETURN_IF_ERROR(graph.set(convolution, dnnConvolutionDilations, dnnTypeInt64, padded(c.dilations(), 1)));
  CLEAVE_RETURN_IF_ERROR(graph.set(convolution, dnnConvolutionPrePaddings, dnnTypeInt64, padded(c.pads_begin(), 0)));
  CLEAVE_RETURN_IF_ERROR(graph.set(convolution, dnnConvolutionPostPaddings, dnnTypeInt64, padded(c.pads_end(), 0)));
  CLEAVE_RETURN_IF_ERROR(graph.finalize(convolution, "refuses"));

  // The three operations name their attributes in one order; the groups follow from the tensors' channels.
  int kind = c.pass() == plan::Convolution::FORWARD      ? dnnConvolutionForward
             : c.pass() == plan::Convolution::GRAD_INPUT ? dnnConvolutionBackwardData
                                                         : dnnConvolutionBackwardFilter;
  int attribute = c.pass() == plan::Convolution::FORWARD      ? dnnForwardAlpha
                  : c.pass() == plan::Convolution::GRAD_INPUT ? dnnBackwardDataAlpha
                                                              : dnnBackwardFilterAlpha;
  CLEAVE_ASSIGN_OR_RETURN(DnnDescriptor operation, graph.descriptor(kind));
  for (double scale : {1.0, 0.0})
    CLEAVE_RETURN_IF_ERROR(
        wide ? graph.set(operation, attribute++, dnnTypeDouble, std::vector{scale})
             : graph.set(operation, attribute++, dnnTypeFloat, std::vector{static_cast<float>(scale)}));
  for (DnnDescriptor part : {convolution, *weight, *input, *output})
    CLEAVE_RETURN_IF_ERROR(graph.set(operation, attribute++, dnnTypeDescriptor, std::vector{part}));
  CLEAVE_RETURN_IF_ERROR(graph.finalize(operation, "refuses the operands of"));
  DnnCores cores = DnnCores::Preferred; // 16 bits
  if (c.input().dtype() == plan::F64) cores = DnnCores::Any;
  if (c.input().dtype() == plan::F32) cores = device.gpu().tf32 ? DnnCores::Any : DnnCores::Refused;
  return graph.compile({operation}, cores, convolutionWorkspace(c));
}

} // namespace

Result<Prepared> prepareConvolution(const plan::Convolution &command, CudaDevice &device, int lane) {
  CLEAVE_RETURN_IF_ERROR(device.gpu().needDnn());
  auto graph = std::make_unique<DnnGraph>(device, lane, "the convolution");
  CLEAVE_RETURN_IF_ERROR(describe(*graph, command, device));
  return Prepared(std::move(graph));
}

} // namespace cleave::runtime::cuda
