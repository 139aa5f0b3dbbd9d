// The CUDA driver is loaded when asked for: one binary runs with and without it.
#include "runtime/probe/machine.h"
#include <dlfcn.h>

namespace cleave::runtime {

std::vector<GpuFigure> findGpus() {
  std::vector<GpuFigure> found;
  void *driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!driver) return found;
  // The driver API's own signatures; CUresult, CUdevice are ints.
  auto symbol = [&](const char *name) { return ::dlsym(driver, name); };
  auto init = reinterpret_cast<int (*)(unsigned)>(symbol("cuInit"));
  auto count = reinterpret_cast<int (*)(int *)>(symbol("cuDeviceGetCount"));
  auto get = reinterpret_cast<int (*)(int *, int)>(symbol("cuDeviceGet"));
  auto nameOf = reinterpret_cast<int (*)(char *, int, int)>(symbol("cuDeviceGetName"));
  auto memoryOf = reinterpret_cast<int (*)(size_t *, int)>(symbol("cuDeviceTotalMem_v2"));
  int devices = 0;
  if (init && count && get && nameOf && memoryOf && init(0) == 0 && count(&devices) == 0)
    for (int ordinal = 0; ordinal < devices; ++ordinal) {
      int device = 0;
      char name[256] = {};
      size_t bytes = 0;
      if (get(&device, ordinal) == 0 && nameOf(name, sizeof name, device) == 0 && memoryOf(&bytes, device) == 0)
        found.push_back({name, static_cast<int64_t>(bytes)});
    }
  ::dlclose(driver);
  return found;
}

} // namespace cleave::runtime
