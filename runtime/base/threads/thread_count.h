// How many threads a process may use, and each of its ranks: the one place that decides.
//
//   --threads N                  of a rank; else the first of these that is told, divided by the process's ranks:
//   OMP_NUM_THREADS              of the process
//   affinity and CPU quota       availableCores() (control_groups.h), divided by the run's processes that share them
#pragma once
#include <cstdint>

namespace cleave::runtime {

// Cores that the scheduler may give this process: those that it is bound to, at most its quota, 1 or more.
int availableCores();
int boundCores();
// OMP_NUM_THREADS (its first number), else availableCores().
int threadsOfProcess();
// Threads of each of a process' `ranks` ranks, where `processes` of the run use the same cores.
int threadsOfRank(int64_t ranks, int64_t processes);

} // namespace cleave::runtime
