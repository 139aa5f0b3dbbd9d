#include "runtime/device/cpu/kernel_object.h"
#include "runtime/device/emulation/grid_services.h"
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cleave::runtime {

Status checkKernelTarget(const std::string &target) {
  size_t slash = target.find('/');
  std::string architecture = target.substr(0, slash), cpu = slash == std::string::npos ? "" : target.substr(slash + 1);
  if (architecture.empty()) return Status::ok();
#if defined(__x86_64__)
  if (architecture != "x86_64")
    return inputError(
        fmt::format("the plan's kernels are compiled for {}, this machine is x86_64: compile the plan again "
                    "for this machine",
                    architecture));
  __builtin_cpu_init();
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  auto any = [&](std::initializer_list<const char *> names) {
    for (const char *entry : names)
      if (cpu.compare(0, std::strlen(entry), entry) == 0) return true;
    return false;
  };
  const char *missing = nullptr;
  if (any({"znver4", "znver5", "skylake-avx512", "cascadelake", "cooperlake", "icelake", "sapphirerapids",
           "emeraldrapids", "graniterapids", "x86-64-v4"}))
    missing = avx512 ? nullptr : "AVX-512";
  else if (any({"znver", "haswell", "broadwell", "skylake", "alderlake", "x86-64-v3"}))
    missing = avx2 ? nullptr : "AVX2 and FMA";
  if (missing)
    return inputError(
        fmt::format("the plan's kernels are compiled for {}, this CPU lacks {}: compile the plan again on this "
                    "machine",
                    cpu, missing));
#endif
  return Status::ok();
}

Result<std::unique_ptr<KernelObject>> KernelObject::load(const plan::Plan &plan) {
  std::unique_ptr<KernelObject> object(new KernelObject);
  if (plan.kernels_size() == 0) return object;
  CLEAVE_RETURN_IF_ERROR(checkKernelTarget(plan.kernel_target()));
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
