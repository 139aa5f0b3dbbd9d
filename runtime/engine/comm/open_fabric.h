// How this process takes part in a run: alone with all devices, or as one rank among processes.
//
//   alone          every device is a thread of this process
//   under MPI      one rank a process, by the plugin libcleave_comm_mpi.so
//   otherwise      one rank a process over TCP (torchrun, srun; see launch.h)
#pragma once
#include "runtime/engine/comm/communicator.h"
#include "runtime/engine/comm/network.h"
#include <memory>

namespace cleave::runtime {

// `plan`: planFingerprint of the plan, which all processes must have. Error: the launch variables ask for another
// number of processes than the mesh has devices, the plugin or the other processes cannot be reached.
Result<std::unique_ptr<Fabric>> openFabric(const dist::Mesh &mesh, const std::string &plan,
                                           const NetworkOptions &options = {});

} // namespace cleave::runtime
