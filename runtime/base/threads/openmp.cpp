// The part of OpenMP's interface (GCC's libgomp) that oneDNN calls, over our teams. The program's symbols come before
// those of libgomp, so that oneDNN's loops and ours run on the same threads, and wait in the same way.
// Source: libgomp.h of GCC, and "GNU Offloading and Multi Processing Runtime Library: The libgomp ABI".
#include "runtime/base/threads/parallel.h"
#include "runtime/base/threads/team.h"
#include <algorithm>

using cleave::runtime::Team;

namespace {

// `for` with a static schedule: what is left of the calling thread's share.
struct StaticLoop {
  long start = 0, step = 1, trips = 0, chunk = 0;
  long next = 0; // chunk of this share, counted
};
thread_local StaticLoop loop;

} // namespace

extern "C" {

void GOMP_parallel_start(void (*body)(void *), void *data, unsigned threads) {
  const unsigned wanted = threads ? threads : static_cast<unsigned>(cleave::runtime::currentThreads());
  Team::ofThisThread().begin(body, data, wanted);
}
void GOMP_parallel_end() { Team::ofThisThread().end(); }
void GOMP_barrier() { Team::meet(); }

// The next range [*first, *last) of iterations; false: none is left.
bool GOMP_loop_static_next(long *first, long *last) {
  const long share = Team::share(), shares = Team::shares();
  long from = 0, to = 0;
  if (loop.chunk == 0) { // one range each, the first shares one iteration longer
    if (loop.next++ > 0) return false;
    const long each = loop.trips / shares, more = loop.trips % shares;
    from = share * each + std::min(share, more);
    to = from + each + (share < more ? 1 : 0);
  } else {
    from = (loop.next++ * shares + share) * loop.chunk;
    to = std::min(from + loop.chunk, loop.trips);
  }
  if (from >= to) return false;
  *first = loop.start + from * loop.step;
  *last = loop.start + to * loop.step;
  return true;
}
bool GOMP_loop_static_start(long start, long end, long step, long chunk, long *first, long *last) {
  const long trips = step > 0 ? (end - start + step - 1) / step : (end - start + step + 1) / step;
  loop = {start, step, std::max(0L, trips), chunk, 0};
  return GOMP_loop_static_next(first, last);
}
void GOMP_loop_end_nowait() {}

int omp_get_thread_num() { return static_cast<int>(Team::share()); }
int omp_get_num_threads() { return static_cast<int>(Team::shares()); }
int omp_get_max_threads() { return cleave::runtime::currentThreads(); }
int omp_in_parallel() { return Team::isWorking() ? 1 : 0; }

} // extern "C"
