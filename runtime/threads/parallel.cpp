#include "runtime/device/parallel.h"
#include <algorithm>

// libgomp's own interface (libgomp.h of GCC), and the OpenMP functions it exports.
extern "C" {
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num();
int omp_get_num_threads();
int omp_get_max_threads();
int omp_get_dynamic();
int omp_in_parallel();
void omp_set_num_threads(int threads);
void omp_set_dynamic(int dynamic);
}

namespace cleave::runtime {
namespace {

struct Loop {
  int64_t count, grains, grain;
  void (*body)(void *, int64_t, int64_t);
  void *context;
};

void runShare(void *data) {
  const Loop &loop = *static_cast<const Loop *>(data);
  int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
  int64_t begin = loop.grains * thread / threads * loop.grain;
  int64_t end = std::min(loop.grains * (thread + 1) / threads * loop.grain, loop.count);
  if (begin < end) loop.body(loop.context, begin, end);
}

} // namespace

void setThreads(int threads) {
  omp_set_dynamic(0);
  omp_set_num_threads(std::max(1, threads));
}

CallersThreads::CallersThreads() : threads(omp_get_max_threads()), isDynamic(omp_get_dynamic() != 0) {}

CallersThreads::~CallersThreads() {
  omp_set_dynamic(isDynamic ? 1 : 0);
  omp_set_num_threads(threads);
}

int currentThreads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

void detail::parallelRanges(int64_t count, int64_t grain, void (*body)(void *, int64_t, int64_t), void *context) {
  Loop loop{count, (count + grain - 1) / grain, grain, body, context};
  int64_t threads = std::min<int64_t>(currentThreads(), loop.grains);
  if (threads <= 1) return body(context, 0, count);
  GOMP_parallel(runShare, &loop, static_cast<unsigned>(threads), 0);
}

} // namespace cleave::runtime
