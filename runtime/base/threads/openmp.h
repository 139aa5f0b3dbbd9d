// The part of OpenMP's interface (GCC's libgomp) that oneDNN calls, over our teams: its loops and ours run on the same
// threads, and wait in the same way. The names are ours, so the OpenMP of a program around the runtime is libgomp's.
// Source: libgomp.h of GCC, and "GNU Offloading and Multi Processing Runtime Library: The libgomp ABI".
//
//   Status s = openmp::bind(dnnl_version());    // GOMP_parallel_start of libdnnl.so is openmp::parallelStart from now
//   on
#pragma once
#include "runtime/base/status.h"

namespace cleave::runtime::openmp {

void parallelStart(void (*body)(void *), void *data, unsigned threads);
void parallelEnd();
void barrier();
bool loopStart(long start, long end, long step, long chunk, long *first, long *last);
// The next range [*first, *last) of iterations; false: none is left.
bool loopNext(long *first, long *last);
void loopEnd();
int threadNumber();
int threadCount();
int mostThreads();
int isParallel();

// Sends the OpenMP calls of the shared library that has something at `inside` here, those of no other. Nobody is within
// them. Error: it calls what is not here, or nothing at all.
Status bind(const void *inside);

} // namespace cleave::runtime::openmp
