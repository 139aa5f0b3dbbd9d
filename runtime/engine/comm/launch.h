// How this process was started, read from the variables that its launcher set. The first that applies:
//
//   mpirun, srun --mpi=...  OMPI_COMM_WORLD_SIZE, PMI_SIZE, PMIX_RANK          Mpi
//   torchrun and the like   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT         Tcp
//   srun                    SLURM_PROCID, SLURM_STEP_NUM_TASKS, ..._NODELIST   Tcp; rank 0 is on the first node
//   nothing of these, or one process                                          Alone; RANK alone says nothing
//
// CLEAVE_ATTEMPT, how often `cleave run --max-restarts` has started the rank again, is added to the port.
//
// srun -N 2 -n 8 cleave run x.plan:  {Tcp, rank 5, size 8, localSize 4, host "node001", port 22045}
#pragma once
#include "runtime/base/status.h"
#include <functional>
#include <string>

namespace cleave::runtime {

struct Launch {
  enum class Kind { Alone, Mpi, Tcp };
  Kind kind = Kind::Alone;
  int size = 1;
  int localSize = 1; // processes on this machine; 1 when the launcher does not tell
  int rank = 0;      // Tcp only: MPI tells its own
  int localRank = 0; // this process's place among those of its machine
  std::string host;  // Tcp: where rank 0 listens, a name or an address
  int port = 0;      // Tcp
  std::string job;   // Tcp: what the launcher calls the run, so that two runs on one port never meet
};

// Error: variables that are missing beside others, contradict each other or are no numbers; the message names them.
// `variable` gives a variable's value or null, as std::getenv does.
Result<Launch> readLaunch(const std::function<const char *(const char *)> &variable);
Result<Launch> readLaunch(); // of this process
// Error: there is no such port, because too much was added to MASTER_PORT.
Status checkPort(int port);

} // namespace cleave::runtime
