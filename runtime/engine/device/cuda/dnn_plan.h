// The engine of cuDNN for a graph of operations, ready to run. Commands that describe the same share one, since making
// it can take a second: some engines are compiled then.
//
//   DnnPlans plans(dnn, handle, /*deterministic=*/false);
//   Result<const DnnPlan *> plan = plans.find(description, {operation}, DnnCores::Preferred, bytes, "the convolution");
#pragma once
#include "runtime/base/status.h"
#include "runtime/engine/device/cuda/library.h"
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace cleave::runtime::cuda {

// Engines on tensor cores: of fp32 these know TF32 only, so that they round; of 16 bits they are the fast ones, and
// another one is taken with a warning.
enum class DnnCores { Refused, Any, Preferred };

// Descriptors of cuDNN's, which end with it. `what` they are for stands in errors: "the convolution".
class DnnDescriptors {
public:
  DnnDescriptors(const Cudnn &dnn, const char *what) : dnn(dnn), what(what) {}
  ~DnnDescriptors();
  DnnDescriptors(const DnnDescriptors &) = delete;

  Result<DnnDescriptor> make(int type);
  template <typename Value>
  Status set(DnnDescriptor to, int attribute, int type, const std::vector<Value> &values) const {
    return check(dnn.set(to, attribute, type, static_cast<int64_t>(values.size()), values.data()), "does not describe");
  }
  Status finalize(DnnDescriptor descriptor, const char *part) const { return check(dnn.finalize(descriptor), part); }
  Status check(int error, const char *doing) const;

private:
  const Cudnn &dnn;
  const char *what;
  std::vector<DnnDescriptor> made;
};

struct DnnPlan {
  DnnPlan(const Cudnn &dnn, const char *what) : descriptors(dnn, what) {}
  DnnDescriptors descriptors;
  DnnDescriptor plan = nullptr;
  int64_t workspaceBytes = 0; // a multiple of 256
  std::string warning;        // "": none
};

class DnnPlans {
public:
  // `deterministic`: engines that may give other bits in every run are passed over.
  DnnPlans(const Cudnn &dnn, DnnHandle handle, bool deterministic)
      : dnn(dnn), handle(handle), deterministic(deterministic) {}

  // `description` says everything about the operations but where tensors are; `what` stands in errors. Error: no engine
  // takes the graph within `mostWorkspace` bytes.
  Result<const DnnPlan *> find(const std::string &description, const std::vector<DnnDescriptor> &operations,
                               DnnCores cores, int64_t mostWorkspace, const char *what);

private:
  const Cudnn &dnn;
  DnnHandle handle;
  bool deterministic;
  std::map<std::string, std::unique_ptr<DnnPlan>> plans;
};

} // namespace cleave::runtime::cuda
