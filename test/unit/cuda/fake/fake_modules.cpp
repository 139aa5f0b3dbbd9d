#include "test/unit/cuda/fake/fake_modules.h"
#include "runtime/engine/device/emulation/grid_services.h"
#include "test/unit/cuda/fake/bf16.h"
#include "test/unit/cuda/fake/fake_cuda.h"
#include "test/unit/cuda/fake/fake_streams.h"
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace fake {
bool inside(unsigned long long address, size_t bytes);
bool knows(const std::string &kernel);

namespace {

using Values = const unsigned long long *;

struct Compiled {
  std::string symbol;
  int buffers = 0, scalars = 0;
  int64_t grain = 1;
  unsigned threads = 0;
  void (*function)(int64_t, int64_t, void *const *, const int64_t *) = nullptr;
};

void fail(const std::string &kernel, const char *why) {
  std::fprintf(stderr, "fake GPU: kernel '%s': %s\n", kernel.c_str(), why);
  setError(700);
}

void runCompiled(Values values, unsigned blocks, unsigned threads, void *context) {
  const auto &kernel = *static_cast<const Compiled *>(context);
  int64_t extent = static_cast<int64_t>(values[kernel.buffers + kernel.scalars]);
  if (blocks != static_cast<uint64_t>((extent + kernel.grain - 1) / kernel.grain))
    return fail(kernel.symbol, "another number of blocks than its extent has");
  if (threads != kernel.threads) return fail(kernel.symbol, "another number of threads than it was made for");
  std::vector<void *> buffers;
  std::vector<int64_t> scalars;
  for (int i = 0; i < kernel.buffers; ++i) {
    if (!inside(values[i], 1)) return fail(kernel.symbol, "an address outside of the GPU's memory");
    buffers.push_back(reinterpret_cast<void *>(values[i]));
  }
  for (int i = 0; i < kernel.scalars; ++i) scalars.push_back(static_cast<int64_t>(values[kernel.buffers + i]));
  kernel.function(0, extent, buffers.data(), scalars.data());
}

bool loadCompiled(const char *image) {
  const char *line = std::strchr(image, '\n') + 1;
  size_t count = 0, bytes = 0;
  std::istringstream(std::string(image + std::strlen("fake-module "), line)) >> count >> bytes;
  static std::deque<Compiled> kernels;
  std::vector<Compiled *> loaded;
  for (size_t i = 0; i < count; ++i) {
    const char *end = std::strchr(line, '\n');
    Compiled &kernel = kernels.emplace_back();
    std::istringstream(std::string(line, end)) >> kernel.symbol >> kernel.buffers >> kernel.scalars >> kernel.grain >>
        kernel.threads;
    loaded.push_back(&kernel);
    line = end + 1;
  }
  int file = ::memfd_create("fake-module", MFD_CLOEXEC);
  for (size_t done = 0; done < bytes;) {
    ssize_t written = ::write(file, line + done, bytes - done);
    if (written <= 0) return false;
    done += static_cast<size_t>(written);
  }
  void *object = ::dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!object) return std::fprintf(stderr, "fake GPU: %s\n", ::dlerror()), false;
  cleave::runtime::attachGrid(object);
  for (Compiled *kernel : loaded) {
    kernel->function = reinterpret_cast<decltype(kernel->function)>(::dlsym(object, kernel->symbol.c_str()));
    if (!kernel->function) return false;
    FakeKernel made{kernel->symbol.c_str(), kernel->buffers + kernel->scalars + 1, runCompiled, kernel};
    fake_cuda_kernel(&made);
  }
  return true;
}

// Parameters: out, table, devices, row, pitch, count (runtime/engine/comm/cuda/reduction_kernels.h).
template <typename Element, typename Sum, typename Join> void reduce(Values p, unsigned, unsigned, void *) {
  auto *out = reinterpret_cast<Element *>(p[0]);
  auto *table = reinterpret_cast<const Element *const *>(p[1]);
  for (unsigned long long i = 0; i < p[5]; ++i) {
    unsigned long long at = i / p[3] * p[4] + i % p[3];
    Sum sum = static_cast<Sum>(table[0][at]);
    for (unsigned long long d = 1; d < p[2]; ++d) sum = Join()(sum, static_cast<Sum>(table[d][at]));
    out[i] = static_cast<Element>(sum);
  }
}
struct Add {
  template <typename T> T operator()(T a, T b) const { return a + b; }
};
struct Larger {
  template <typename T> T operator()(T a, T b) const { return a > b ? a : b; }
};
struct Smaller {
  template <typename T> T operator()(T a, T b) const { return a < b ? a : b; }
};
template <typename Element, typename Sum> void addReductions(const std::string &type) {
  static std::deque<std::string> names;
  const std::pair<const char *, decltype(FakeKernel::run)> all[] = {{"sum", reduce<Element, Sum, Add>},
                                                                    {"max", reduce<Element, Sum, Larger>},
                                                                    {"min", reduce<Element, Sum, Smaller>}};
  for (auto [operation, function] : all) {
    std::string name = "cleave_reduce_" + type + "_" + operation;
    if (knows(name)) continue;
    FakeKernel made{names.emplace_back(name).c_str(), 6, function, nullptr};
    fake_cuda_kernel(&made);
  }
}

} // namespace

bool loadModule(const void *image) {
  const char *text = static_cast<const char *>(image);
  if (!text || !*text) return false;
  if (std::strncmp(text, "fake-module ", 12) == 0) return loadCompiled(text);
  addReductions<float, float>("f32");
  addReductions<double, double>("f64");
  addReductions<int32_t, int32_t>("i32");
  addReductions<int64_t, int64_t>("i64");
  addReductions<_Float16, float>("f16");
  addReductions<Bf16, float>("bf16");
  return true;
}

} // namespace fake
