// How this process takes part in a run: alone with all devices, or as one rank among processes.
//
//   no launch variables                          every device is a thread of this process
//   mpirun, srun (OMPI_COMM_WORLD_SIZE, PMI_*)   one rank a process over MPI, by the plugin libcleave_comm_mpi.so
//   torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)   one rank a process over TCP
#pragma once
#include "runtime/comm/communicator.h"
#include <memory>

namespace cleave::runtime {

// Error: the launch variables ask for another number of processes than the mesh has devices, the plugin or the other
// processes cannot be reached.
Result<std::unique_ptr<Fabric>> openFabric(const dist::Mesh &mesh);

} // namespace cleave::runtime
