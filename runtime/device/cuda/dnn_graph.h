// A graph of cuDNN's backend interface as a command: tensors and operations are described, its heuristic gives engine
// configurations, the first that makes a plan and keeps to the workspace is run.
//
//   DnnGraph graph(device, lane, "the convolution");
//   Result<DnnDescriptor> x = graph.tensor({.dtype = plan::F32, .sizes = {...}, .strides = {...}, .address = a});
//   ... operations ...
//   Status s = graph.compile({operation}, DnnCores::Preferred, convolutionWorkspace(c));
#pragma once
#include "runtime/device/cuda/cuda_device.h"
#include <list>

namespace cleave::runtime::cuda {

struct DnnTensor {
  int type = 0; // dnnFloat, ...
  std::vector<int64_t> sizes, strides;
  // Where its elements are. Virtual: nowhere, it passes from one operation to the next. Scratch: in the workspace,
  // behind what the engine takes. Value: a number that goes along with the call.
  enum Place { Device, Virtual, Scratch, Value } place = Device;
  Address address = 0;
  float value = 0;
};

// Engines on tensor cores: of fp32 these know TF32 only, so that they round; of 16 bits they are the fast ones, and
// another one is taken with a warning.
enum class DnnCores { Refused, Any, Preferred };

class DnnGraph final : public PreparedCommand {
public:
  // `what` stands in errors: "the convolution".
  DnnGraph(CudaDevice &device, int lane, const char *what)
      : device(device), dnn(*device.gpu().dnn), handle(device.gpu().dnnHandle), stream(device.stream(lane)),
        what(what) {}
  ~DnnGraph() override;

  Result<DnnDescriptor> tensor(const DnnTensor &tensor);
  Result<DnnDescriptor> descriptor(int type);
  template <typename Value> Status set(DnnDescriptor to, int attribute, int type, const std::vector<Value> &values) {
    return check(dnn.set(to, attribute, type, static_cast<int64_t>(values.size()), values.data()), "does not describe");
  }
  Status finalize(DnnDescriptor descriptor, const char *part) { return check(dnn.finalize(descriptor), part); }

  // Error: no engine takes the graph.
  Status compile(const std::vector<DnnDescriptor> &operations, DnnCores cores, int64_t mostWorkspace);
  Status run() override;
  std::string warning() const override { return warned; }

private:
  Status check(int error, const char *doing) const;
  // Numbers of dnnNote...
  Result<std::vector<int>> notesOf(DnnDescriptor configuration);
  // False: the engine is passed over, and `why` says for what reason. Else it is the plan.
  Result<bool> take(DnnDescriptor configuration, int64_t mostWorkspace, Status &why);
  Status bind();

  CudaDevice &device;
  const Cudnn &dnn;
  DnnHandle handle;
  Stream stream;
  const char *what;
  std::string warned;
  std::vector<DnnDescriptor> made;
  DnnDescriptor plan = nullptr, pack = nullptr;
  struct Bound {
    int64_t id;
    void *pointer;        // of a tensor in scratch: null, and
    int64_t scratch = -1; // where it is behind the engine's workspace
  };
  std::vector<Bound> bound;
  std::list<float> values;
  int64_t ids = 0, workspaceBytes = 0, scratchBytes = 0;
};

// The library's number of an element type; -1 for those it does not know.
int dnnType(plan::DType dtype);

} // namespace cleave::runtime::cuda
