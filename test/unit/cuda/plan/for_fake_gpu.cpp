#include "test/unit/cuda/plan/for_fake_gpu.h"
#include "runtime/plan/code_digest.h"
#include <fmt/format.h>
#include <map>

namespace cleave {

void makeForFakeGpu(plan::Plan &plan) {
  std::map<int32_t, int64_t> grains;
  auto see = [&](const plan::Launch &launch) { grains[launch.kernel()] = launch.grain(); };
  for (const plan::Program &program : plan.programs())
    for (const plan::Fragment &fragment : program.fragments())
      for (const plan::Command &command : fragment.commands()) {
        if (command.has_launch()) see(command.launch());
        for (const plan::Launch &launch : command.launches()) see(launch);
      }
  std::string module = fmt::format("fake-module {} {}\n", plan.kernels_size(), plan.kernel_object().size());
  for (int i = 0; i < plan.kernels_size(); ++i) {
    const plan::Kernel &kernel = plan.kernels(i);
    module += fmt::format("{} {} {} {} {}\n", kernel.symbol(), kernel.num_buffers(), kernel.num_scalars(),
                          grains.contains(i) ? grains[i] : 1, kernel.threads());
  }
  plan.mutable_cuda()->set_cubin(module + plan.kernel_object());
  plan.clear_kernel_object();
  plan.set_code_digest(runtime::codeDigest(plan));
}

} // namespace cleave
