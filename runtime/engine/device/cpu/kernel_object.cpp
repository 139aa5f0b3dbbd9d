#include "runtime/engine/device/cpu/kernel_object.h"
#include "runtime/base/cpu_features.h"
#include "runtime/engine/device/emulation/grid_services.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <iterator>
#include <sys/mman.h>
#include <unistd.h>

namespace cleave::runtime {

Status checkKernelTarget(const plan::Plan &plan) {
  if (plan.kernel_object().empty()) return Status::ok();
  if (plan.kernel_target().empty() || plan.kernel_target().find('/') != std::string::npos)
    return inputError("the plan does not say which instructions its kernels use, as those of older releases: compile "
                      "it again");
  std::vector<std::string> missing;
  std::ranges::copy_if(plan.kernel_features(), std::back_inserter(missing), std::not_fn(cpuHas));
  if (missing.empty()) return Status::ok();
  const int level = cpuLevel();
  return inputError(fmt::format("the plan's kernels are compiled for the CPU {}, this one lacks {}: compile the plan "
                                "again, here or with --cpu x86-64{}",
                                plan.kernel_target(), fmt::join(missing, ", "),
                                level > 1 ? fmt::format("-v{}", level) : ""));
}

Result<std::unique_ptr<KernelObject>> KernelObject::load(const plan::Plan &plan) {
  std::unique_ptr<KernelObject> object(new KernelObject);
  if (plan.kernels_size() == 0) return object;
  CLEAVE_RETURN_IF_ERROR(checkKernelTarget(plan));
  const std::string &bytes = plan.kernel_object();
  if (bytes.empty() && plan.has_cuda())
    return inputError(
        fmt::format("the plan is for GPUs of compute capability {}, and there is none here; compiled with "
                    "--emulate, its kernels run on this CPU",
                    plan.cuda().target()));
  if (bytes.empty()) return inputError("the plan names kernels but holds no kernel object");
  auto fail = [](const char *doing) {
    return runError(fmt::format("cannot {} the plan's kernels: {}", doing, std::strerror(errno)));
  };
  object->descriptor = ::memfd_create("cleave-kernels", MFD_CLOEXEC);
  if (object->descriptor < 0) return fail("make a file in memory for");
  for (size_t done = 0; done < bytes.size();) {
    ssize_t written = ::write(object->descriptor, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail("write");
    done += static_cast<size_t>(written);
  }
  std::string path = fmt::format("/proc/self/fd/{}", object->descriptor);
  object->handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!object->handle) {
    const char *why = ::dlerror();
    return inputError(fmt::format("the plan's kernels do not load: {}", why ? why : "no reason given"));
  }
  attachGrid(object->handle);
  for (const plan::Kernel &kernel : plan.kernels()) {
    void *symbol = ::dlsym(object->handle, kernel.symbol().c_str());
    if (!symbol) return inputError(fmt::format("the plan's kernel object lacks the symbol '{}'", kernel.symbol()));
    object->functions.push_back(reinterpret_cast<KernelFunction>(symbol));
  }
  return object;
}

KernelObject::~KernelObject() {
  if (handle) ::dlclose(handle);
  if (descriptor >= 0) ::close(descriptor);
}

} // namespace cleave::runtime
