// fake_gpu_plan IN.plan OUT.plan: a plan compiled with --emulate as one that the fake driver runs
// (fake/fake_modules.h). `cleave run` with CLEAVE_CUDA_LIBRARIES naming the fake libraries' folder then takes the way
// that it takes on a GPU.
#include "runtime/plan/plan_file.h"
#include <cstdio>
#include <fmt/format.h>
#include <map>

using namespace cleave;

int main(int argc, char **argv) {
  if (argc != 3) return std::fputs("usage: fake_gpu_plan IN.plan OUT.plan\n", stderr), 2;
  Result<plan::Plan> read = runtime::readPlanFile(argv[1]);
  if (!read) return std::fprintf(stderr, "%s\n", read.status().message().c_str()), 1;
  plan::Plan plan = std::move(*read);
  if (!plan.has_cuda() || plan.kernel_object().empty())
    return std::fprintf(stderr, "%s: not compiled for GPUs with --emulate\n", argv[1]), 1;
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
  Status status = runtime::writePlanFile(plan, argv[2]);
  if (!status) return std::fprintf(stderr, "%s\n", status.message().c_str()), 1;
  return 0;
}
