// The weights of mlp_plan.h's data, part by part, on the devices of an executor: CPUs, GPUs, this process's ranks.
#pragma once
#include "runtime/engine/executor/executor.h"
#include "test/unit/runtime/mlp_plan.h"

namespace cleave::runtime::test {

void loadWeights(Executor &executor, const MlpData &data);

} // namespace cleave::runtime::test
