// A graph of cuDNN's backend interface as a command: tensors and operations are described, and the engine for them
// (dnn_plan.h) is run at these addresses.
//
//   DnnGraph graph(device, lane, "the convolution");
//   Result<DnnDescriptor> x = graph.tensor({.dtype = plan::F32, .sizes = {...}, .strides = {...}, .address = a});
//   ... operations ...
//   Status s = graph.compile({operation}, DnnCores::Preferred, convolutionWorkspace(c));
#pragma once
#include "runtime/engine/device/cuda/cuda_device.h"
#include "runtime/engine/device/cuda/dnn_plan.h"
#include <fmt/format.h>
#include <list>
#include <unordered_map>
#include <variant>

namespace cleave::runtime::cuda {

struct DnnTensor {
  int type = 0; // dnnFloat, ...
  std::vector<int64_t> sizes, strides;
  // Where its elements are. Virtual: nowhere, it passes from one operation to the next. Scratch: in the workspace,
  // behind what the engine takes. Value: a number that goes along with the call.
  enum Place { Device, Virtual, Scratch, Value } place = Device;
  Address address = 0;
  std::variant<float, int32_t> value = 0.0F;
};

class DnnGraph final : public PreparedCommand {
public:
  // `what` stands in errors: "the convolution".
  DnnGraph(CudaDevice &device, int lane, const char *what)
      : device(device), dnn(*device.gpu().dnn), handle(device.gpu().dnnHandle), stream(device.stream(lane)), what(what),
        descriptors(dnn, what) {}

  Result<DnnDescriptor> tensor(const DnnTensor &tensor);
  Result<DnnDescriptor> descriptor(int type);
  template <typename Value> Status set(DnnDescriptor to, int attribute, int type, const std::vector<Value> &values) {
    if (!plan) describe(to, attribute, values);
    return descriptors.set(to, attribute, type, values);
  }
  Status finalize(DnnDescriptor descriptor, const char *part) { return descriptors.finalize(descriptor, part); }

  // Error: no engine takes the graph.
  Status compile(const std::vector<DnnDescriptor> &operations, DnnCores cores, int64_t mostWorkspace);
  Status run() override;
  std::string warning() const override { return plan ? plan->warning : ""; }

private:
  // Adds to the description that graphs of the same operations share.
  template <typename Value> void describe(DnnDescriptor to, int attribute, const std::vector<Value> &values) {
    description += fmt::format("{}.{}", numbers.at(to), attribute);
    for (const Value &value : values)
      if constexpr (std::is_same_v<Value, DnnDescriptor>)
        description += fmt::format(" #{}", numbers.at(value));
      else
        description += fmt::format(" {}", +value);
    description += '\n';
  }
  Status bind();

  CudaDevice &device;
  const Cudnn &dnn;
  DnnHandle handle;
  Stream stream;
  const char *what;
  DnnDescriptors descriptors;
  std::unordered_map<DnnDescriptor, size_t> numbers;
  std::string description;
  const DnnPlan *plan = nullptr; // the GPU's
  DnnDescriptor pack = nullptr;
  struct Bound {
    int64_t id;
    void *pointer;        // of a tensor in scratch: null, and
    int64_t scratch = -1; // where it is behind the engine's workspace
  };
  std::vector<Bound> bound;
  std::list<std::variant<float, int32_t>> values;
  int64_t ids = 0, scratchBytes = 0;
};

// The library's number of an element type; -1 for those it does not know.
int dnnType(plan::DType dtype);

} // namespace cleave::runtime::cuda
