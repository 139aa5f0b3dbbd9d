// fake_gpu_plan IN.plan OUT.plan: a plan compiled with --emulate as one that the fake driver runs. `cleave run` with
// CLEAVE_CUDA_LIBRARIES naming the fake libraries' folder then takes the way that it takes on a GPU. As a compiled plan
// it is one that its user trusts.
#include "runtime/base/atomic_file.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/trust.h"
#include "test/unit/cuda/plan/for_fake_gpu.h"
#include <cstdio>

using namespace cleave;

int main(int argc, char **argv) {
  if (argc != 3) return std::fputs("usage: fake_gpu_plan IN.plan OUT.plan\n", stderr), 2;
  Result<plan::Plan> plan = runtime::readPlanFile(argv[1]);
  if (!plan) return std::fprintf(stderr, "%s\n", plan.status().message().c_str()), 1;
  if (!plan->has_cuda() || plan->kernel_object().empty())
    return std::fprintf(stderr, "%s: not compiled for GPUs with --emulate\n", argv[1]), 1;
  makeForFakeGpu(*plan);
  Result<std::string> encoded = runtime::encodePlan(*plan);
  Status status = encoded ? runtime::writeFileAtomically(*encoded, argv[2]) : encoded.status();
  if (status) status = runtime::trustPlan(*encoded);
  if (!status) return std::fprintf(stderr, "%s\n", status.message().c_str()), 1;
  return 0;
}
