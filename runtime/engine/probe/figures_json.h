// What a probe measured, as `cleave probe --json` prints it: docs/reference/schemas/probe.schema.json has the keys.
// Units stand in the keys: seconds, bytes, and FLOP or bytes a second.
#pragma once
#include "runtime/engine/probe/gpu_machine.h"
#include <nlohmann/json_fwd.hpp>

namespace cleave::runtime {

nlohmann::ordered_json figuresJson(const MachineFigures &figures);
nlohmann::ordered_json figuresJson(const GpuFigures &figures);

} // namespace cleave::runtime
