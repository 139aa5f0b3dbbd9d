// The plan's compiled kernels, loaded from memory: the ELF object goes into an anonymous file and is dlopened there.
//
//   Result<std::unique_ptr<KernelObject>> object = KernelObject::load(plan);
//   KernelFunction f = (*object)->function(launch.kernel());
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <memory>
#include <vector>

namespace cleave::runtime {

using KernelFunction = void (*)(int64_t begin, int64_t end, void *const *buffers, const int64_t *scalars);

class KernelObject {
public:
  // Error: the object does not load, a symbol is missing, or this CPU lacks instructions that the kernels use.
  static Result<std::unique_ptr<KernelObject>> load(const plan::Plan &plan);
  ~KernelObject();
  KernelFunction function(int32_t kernel) const { return functions[static_cast<size_t>(kernel)]; }

private:
  KernelObject() = default;
  void *handle = nullptr;
  int descriptor = -1; // stays open: dlopen tells objects apart by the path /proc/self/fd/N
  std::vector<KernelFunction> functions;
};

// Error, naming what is missing, when this CPU cannot run the plan's kernels.
Status checkKernelTarget(const plan::Plan &plan);

} // namespace cleave::runtime
