// The tensors that a device of an emitted program holds when its memory is fullest.
//
//   nameHeldTensors(report.rankMemory[0], plan, mesh, 0, DisplayNames(problem));
//   held: {"parameter", "wte.weight", 1, 147 MiB}, ..., {"kept", "h.0..11.mlp (Gelu)", 4 copies, 64 MiB}, ...,
//   {"in use", "loss:Exp", ...}
#pragma once
#include "compiler/planner/explain/display_names.h"
#include "compiler/report/report.h"
#include "runtime/base/sharding/mesh.h"

namespace cleave::report {

double shardBytes(const dist::Mesh &mesh, const plan::Parameter &parameter);
// Does it lie in the memory of the devices that run the program?
bool isOnDevice(const plan::Parameter &parameter, int program);

// Persistent tensors and what waits for the backward pass have their room all the time; the moment is that with most
// scratch in use. A tensor between commands has the name of the command that makes it. Repetitions are one.
void nameHeldTensors(RankMemory &rank, const plan::Plan &plan, const dist::Mesh &mesh, int program,
                     const planner::DisplayNames &names);

} // namespace cleave::report
