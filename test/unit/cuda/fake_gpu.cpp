#include "test/unit/cuda/fake_gpu.h"
#include "runtime/base/strided_copy.h"
#include "runtime/engine/comm/cuda/reduction_kernels.h"
#include "runtime/engine/comm/reduce.h"
#include "runtime/plan/dtype.h"
#include "test/unit/runtime/describe_kernels.h"
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

namespace cleave::runtime::test {
namespace {

struct Reduction {
  ReduceFunction function;
  int64_t element;
};
// As reduction_kernels.h has the parameters: out, table, devices, row, pitch, count.
void runReduction(const unsigned long long *p, unsigned, unsigned, void *context) {
  const auto &reduction = *static_cast<const Reduction *>(context);
  auto *out = reinterpret_cast<std::byte *>(p[0]);
  auto *table = reinterpret_cast<std::byte *const *>(p[1]);
  auto devices = static_cast<int64_t>(p[2]), row = static_cast<int64_t>(p[3]), pitch = static_cast<int64_t>(p[4]),
       count = static_cast<int64_t>(p[5]);
  for (int64_t begin = 0; begin < count; begin += row) {
    std::vector<const std::byte *> inputs;
    for (int64_t d = 0; d < devices; ++d) inputs.push_back(table[d] + begin / row * pitch * reduction.element);
    reduction.function(out + begin * reduction.element, inputs.data(), devices, std::min(row, count - begin));
  }
}

// check_finite: the value, the fault word, the code
void checkFinite(const unsigned long long *p, unsigned, unsigned, void *) {
  auto &word = *reinterpret_cast<int32_t *>(p[1]);
  if (!std::isfinite(*reinterpret_cast<const float *>(p[0])) && word == 0) word = static_cast<int32_t>(p[2]);
}

struct BoundCopy {
  StridedCopy copy;
  int64_t source, target; // bytes
};
void runCopy(const unsigned long long *p, unsigned, unsigned, void *context) {
  const auto &bound = *static_cast<const BoundCopy *>(context);
  bound.copy.run(reinterpret_cast<const std::byte *>(p[0]) + bound.source,
                 reinterpret_cast<std::byte *>(p[1]) + bound.target);
}

struct BoundFill {
  std::string value;
  int64_t count;
};
void runFill(const unsigned long long *p, unsigned, unsigned, void *context) {
  const auto &bound = *static_cast<const BoundFill *>(context);
  for (int64_t i = 0; i < bound.count; ++i)
    std::memcpy(reinterpret_cast<std::byte *>(p[0]) + i * static_cast<int64_t>(bound.value.size()), bound.value.data(),
                bound.value.size());
}

void *fakeLibrary() {
  ::setenv("CLEAVE_CUDA_LIBRARIES", FAKE_LIBRARIES, 1);
  static void *handle = ::dlopen(FAKE_LIBRARIES "/libcuda.so.1", RTLD_NOW);
  return handle;
}

} // namespace

std::string FakeGpu::cache() { return testing::TempDir() + "fake-gpu-cache-" + std::to_string(::getpid()); }

void FakeGpu::count(int gpus) { ::setenv("FAKE_CUDA_GPUS", std::to_string(gpus).c_str(), 1); }

FakeGpu::FakeGpu() {
  count(1);
  std::filesystem::remove_all(cache());
  ::setenv("XDG_CACHE_HOME", cache().c_str(), 1);
  void *library = fakeLibrary();
  auto find = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
  };
  find(addKernel, "fake_cuda_kernel"), find(failKernel, "fake_cuda_fail"), find(refuseKernel, "fake_cuda_refuse");
  find(hangKernel, "fake_cuda_hang"), find(setMemory, "fake_cuda_memory"), find(reset, "fake_cuda_reset");
  find(setDepth, "fake_cuda_depth");
  find(launches, "fake_cuda_graph_launches"), find(bytes, "fake_cuda_allocated");
  find(copies, "fake_cuda_uploads"), find(capturedCopies, "fake_cuda_captured_uploads");
  find(setEpilogues, "fake_blas_epilogues"), find(refuseCapturedKernel, "fake_cuda_refuse_captured");
  find(setExports, "fake_cuda_exports"), find(unexportedBytes, "fake_cuda_unexported");
  reset();
  addReductions();
  FakeKernel check{"check_finite", 4, checkFinite, nullptr};
  addKernel(&check);
}
FakeGpu::~FakeGpu() {
  reset();
  std::filesystem::remove_all(cache());
}

void FakeGpu::addReductions() {
  static std::deque<Reduction> reductions;
  static std::deque<std::string> names;
  for (plan::DType dtype : {plan::F32, plan::F64, plan::I32, plan::I64, plan::BF16, plan::F16, plan::BOOL})
    for (plan::Collective::Reduce reduce : {plan::Collective::SUM, plan::Collective::MAX, plan::Collective::MIN}) {
      Reduction &reduction = reductions.emplace_back(reduceFunction(dtype, reduce), byteSize(dtype));
      FakeKernel kernel{names.emplace_back(cuda::reductionName(dtype, reduce)).c_str(), 6, runReduction, &reduction};
      addKernel(&kernel);
    }
}

void FakeGpu::runBound(const unsigned long long *parameters, unsigned, unsigned, void *context) {
  const auto &kernel = *static_cast<const Bound *>(context);
  std::vector<void *> buffers;
  std::vector<int64_t> scalars;
  for (int i = 0; i < kernel.buffers; ++i) buffers.push_back(reinterpret_cast<void *>(parameters[i]));
  for (int i = 0; i < kernel.scalars; ++i) scalars.push_back(static_cast<int64_t>(parameters[kernel.buffers + i]));
  kernel.function(0, static_cast<int64_t>(parameters[kernel.buffers + kernel.scalars]), buffers.data(), scalars.data());
}

// A kernel of its own, as the compiler makes them: sizes and strides are constants of it.
void FakeGpu::addCopy(plan::Plan &plan, plan::Command &command) {
  static std::deque<BoundCopy> copies;
  const plan::Copy &copy = command.copy();
  int64_t element = byteSize(copy.source().dtype());
  BoundCopy &made =
      copies.emplace_back(StridedCopy({copy.sizes().begin(), copy.sizes().end()},
                                      {copy.source_strides().begin(), copy.source_strides().end()},
                                      {copy.target_strides().begin(), copy.target_strides().end()}, element),
                          copy.source_offset().base() * element, copy.target_offset().base() * element);
  EXPECT_EQ(copy.source_offset().terms_size() + copy.target_offset().terms_size(), 0);
  plan::Kernel &kernel = *plan.add_kernels();
  kernel.set_symbol("copy_" + std::to_string(copies.size()));
  kernel.set_num_buffers(2), kernel.set_num_outputs(1), kernel.set_threads(64);
  FakeKernel fake{kernel.symbol().c_str(), 3, runCopy, &made};
  addKernel(&fake);
  plan::Launch &launch = *command.add_launches();
  launch.set_kernel(plan.kernels_size() - 1);
  *launch.add_buffers() = copy.source(), *launch.add_buffers() = copy.target();
  launch.set_extent(1), launch.set_grain(64);
}

void FakeGpu::addFill(plan::Plan &plan, plan::Command &command) {
  static std::deque<BoundFill> fills;
  const plan::Fill &fill = command.fill();
  BoundFill &made = fills.emplace_back(fill.value(), elementCount(fill.target().shape()));
  plan::Kernel &kernel = *plan.add_kernels();
  kernel.set_symbol("fill_" + std::to_string(fills.size()));
  kernel.set_num_buffers(1), kernel.set_num_outputs(1), kernel.set_threads(64);
  FakeKernel fake{kernel.symbol().c_str(), 2, runFill, &made};
  addKernel(&fake);
  plan::Launch &launch = *command.add_launches();
  launch.set_kernel(plan.kernels_size() - 1);
  *launch.add_buffers() = fill.target();
  launch.set_extent(1), launch.set_grain(64);
}

plan::Plan FakeGpu::planOf(plan::Plan plan) {
  static void *kernels = ::dlopen(TEST_KERNELS, RTLD_NOW);
  for (plan::Kernel &kernel : *plan.mutable_kernels()) {
    kernel.set_threads(128);
    Bound &made =
        bound.emplace_back(reinterpret_cast<decltype(Bound::function)>(::dlsym(kernels, kernel.symbol().c_str())),
                           static_cast<int>(kernel.num_buffers()), static_cast<int>(kernel.num_scalars()));
    EXPECT_TRUE(made.function) << kernel.symbol();
    FakeKernel fake{kernel.symbol().c_str(), made.buffers + made.scalars + 1, runBound, &made};
    addKernel(&fake);
  }
  plan::Kernel &check = *plan.add_kernels();
  check.set_symbol("check_finite");
  check.set_num_buffers(2), check.set_num_scalars(1), check.set_num_outputs(1), check.set_threads(32);
  int checkNumber = plan.kernels_size() - 1;
  for (plan::Program &program : *plan.mutable_programs()) {
    program.set_fault_offset((program.arena_bytes() + 63) / 64 * 64);
    program.set_arena_bytes(program.fault_offset() + 64);
    int64_t number = 0; // of the command in its program
    for (plan::Fragment &fragment : *program.mutable_fragments())
      for (plan::Command &command : *fragment.mutable_commands()) {
        ++number;
        if (command.has_copy()) addCopy(plan, command);
        if (command.has_fill()) addFill(plan, command);
        if (!command.has_check_finite()) continue;
        plan::Launch &launch = *command.add_launches();
        launch.set_kernel(checkNumber);
        *launch.add_buffers() = command.check_finite().buffer();
        plan::Buffer &word = *launch.add_buffers();
        word.set_offset(program.fault_offset()), word.set_dtype(plan::I32), word.add_shape(1);
        launch.add_scalars()->set_base(number);
        launch.set_extent(1), launch.set_grain(32);
      }
  }
  plan.mutable_cuda()->set_target("sm_90");
  plan.mutable_cuda()->set_ptx("the fake driver knows kernels by their names");
  plan.clear_kernel_object();
  describeKernels(plan);
  return plan;
}

} // namespace cleave::runtime::test
