// A plan for GPUs as one that the fake driver runs: its kernels for an emulated grid take the place of the GPU's code,
// in the form that the fake loads (fake/fake_modules.h).
#pragma once
#include "plan/plan.pb.h"

namespace cleave {

// `plan` was compiled for GPUs with --emulate.
void makeForFakeGpu(plan::Plan &plan);

} // namespace cleave
