#include "runtime/engine/device/cuda/gpu.h"
#include <cstdlib>
#include <fmt/format.h>

namespace cleave::runtime::cuda {

Result<int> Gpu::count() {
  CLEAVE_ASSIGN_OR_RETURN(const Driver *driver, openDriver());
  int found = 0;
  if (int error = driver->deviceGetCount(&found)) return driverStatus(*driver, error, "cannot count the GPUs");
  return found;
}

Result<std::shared_ptr<Gpu>> Gpu::open(int ordinal, const plan::Plan &plan) {
  CLEAVE_ASSIGN_OR_RETURN(const Driver *driver, openDriver());
  std::shared_ptr<Gpu> gpu(new Gpu(*driver, ordinal));
  CLEAVE_RETURN_IF_ERROR(gpu->start(plan));
  return gpu;
}

Status Gpu::start(const plan::Plan &plan) {
  CLEAVE_RETURN_IF_ERROR(check(driver.deviceGet(&device, ordinal), "cannot open the GPU"));
  char text[256] = {};
  driver.deviceGetName(text, sizeof text, device);
  name = text;
  auto attribute = [&](int which) {
    int value = 0;
    driver.deviceGetAttribute(&value, which, device);
    return value;
  };
  capability = 10 * attribute(attributeMajor) + attribute(attributeMinor);
  virtualMemory = attribute(attributeVirtualMemory) != 0;
  fileDescriptors = attribute(attributeFileDescriptors) != 0, directAccess = attribute(attributeDirectAccess) != 0;
  const plan::CudaModule &code = plan.cuda();
  tf32 = code.tf32(), deterministic = code.deterministic();
  int target = code.target().starts_with("sm_") ? std::atoi(code.target().c_str() + 3) : 0;
  if (capability < target)
    return inputError(fmt::format("the plan's kernels are for compute capability {}.{} ({}) and above, GPU {} is a {} "
                                  "with {}.{}: compile for a cluster of that kind",
                                  target / 10, target % 10, code.target(), ordinal, name, capability / 10,
                                  capability % 10));
  CLEAVE_RETURN_IF_ERROR(check(driver.primaryCtxRetain(&context, device), "cannot make a context on the GPU"));
  CLEAVE_RETURN_IF_ERROR(enter());
  if (plan.kernels_size() == 0) return Status::ok();
  // A cubin runs on GPUs of the same major capability; others have the PTX assembled by the driver.
  bool binary = !code.cubin().empty() && capability / 10 == target / 10;
  Result<Module> module = load(binary ? code.cubin().data() : code.ptx().c_str(), "the plan's kernels");
  if (!module && binary && !code.ptx().empty()) { // of a newer assembler than the driver knows
    Result<Module> assembled = load(code.ptx().c_str(), "the plan's kernels");
    if (!assembled)
      return inputError(
          fmt::format("{}; and from their PTX: {}", module.status().message(), assembled.status().message()));
    module = std::move(assembled);
  }
  if (!module) return module.status();
  for (const plan::Kernel &kernel : plan.kernels()) {
    Function function = nullptr;
    if (driver.moduleGetFunction(&function, *module, kernel.symbol().c_str()))
      return inputError(fmt::format("the plan's GPU code lacks the kernel '{}'", kernel.symbol()));
    // More than 48 KiB of a block's shared memory must be asked for.
    if (kernel.shared_bytes() > 48 * 1024)
      if (int error = driver.funcSetAttribute(function, functionDynamicShared, kernel.shared_bytes()))
        return check(error, fmt::format("kernel '{}' wants {} bytes of shared memory, a block of {} has {}",
                                        kernel.symbol(), kernel.shared_bytes(), name, attribute(attributePeakShared))
                                .c_str());
    kernels.push_back({function, &kernel});
  }
  return Status::ok();
}

Gpu::~Gpu() {
  if (!context) return;
  driver.ctxSetCurrent(context);
  if (blasHandle) blas->destroy(blasHandle);
  dnnPlans.reset();
  if (dnnHandle) dnn->destroy(dnnHandle);
  for (Module module : modules) driver.moduleUnload(module);
  driver.primaryCtxRelease(device);
}

Status Gpu::enter() const { return check(driver.ctxSetCurrent(context), "cannot use the GPU's context"); }

Result<Module> Gpu::load(const void *image, const char *what) {
  std::string log(4096, '\0');
  int options[] = {jitErrorLog, jitErrorLogBytes};
  void *values[] = {log.data(), reinterpret_cast<void *>(log.size())};
  Module module = nullptr;
  if (int error = driver.moduleLoadDataEx(&module, image, 2, options, values)) {
    Status why = check(error, fmt::format("{} do not load on GPU {} ({})", what, ordinal, name).c_str());
    return runError(fmt::format("{}{}{}", why.message(), log[0] ? ": " : "", log.c_str()));
  }
  modules.push_back(module);
  return module;
}

Status Gpu::needBlas() {
  if (blasHandle) return Status::ok();
  CLEAVE_ASSIGN_OR_RETURN(const CublasLt *opened, openCublasLt());
  blas = opened;
  CLEAVE_RETURN_IF_ERROR(enter()); // handles are of the thread's GPU
  return blasStatus(*blas, blas->create(&blasHandle), "cannot start cuBLASLt");
}

Status Gpu::needDnn() {
  if (dnnHandle) return Status::ok();
  CLEAVE_ASSIGN_OR_RETURN(const Cudnn *opened, openCudnn());
  dnn = opened;
  CLEAVE_RETURN_IF_ERROR(enter());
  CLEAVE_RETURN_IF_ERROR(dnnStatus(*dnn, dnn->create(&dnnHandle), "cannot start cuDNN"));
  dnnPlans = std::make_unique<DnnPlans>(*dnn, dnnHandle, deterministic);
  return Status::ok();
}

} // namespace cleave::runtime::cuda
