// How the inputs of a GPU's step lie in its memory, beside the arena (staged_inputs.h): for the planner, too.
#pragma once
#include <cstdint>

namespace cleave::runtime {

constexpr int64_t inputStages = 2; // of the step that runs and of the next one
constexpr int64_t stagedAlignment = 256;

} // namespace cleave::runtime
