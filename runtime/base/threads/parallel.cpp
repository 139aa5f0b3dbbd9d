#include "runtime/base/threads/parallel.h"
#include "runtime/base/threads/team.h"
#include "runtime/base/threads/thread_count.h"
#include <algorithm>
#include <dlfcn.h>

extern "C" int omp_get_max_threads();

namespace cleave::runtime {
namespace {

thread_local int threadsOfCaller = 0; // 0: not told, all that the process may use

struct Loop {
  int64_t count, grains, grain;
  void (*body)(void *, int64_t, int64_t);
  void *context;
};

void runShare(void *data) {
  const Loop &loop = *static_cast<const Loop *>(data);
  int64_t share = Team::share(), shares = Team::shares();
  int64_t begin = loop.grains * share / shares * loop.grain;
  int64_t end = std::min(loop.grains * (share + 1) / shares * loop.grain, loop.count);
  if (begin < end) loop.body(loop.context, begin, end);
}

// In a program that brings its own OpenMP, oneDNN may have found that one instead of ours (openmp.cpp).
void tellOtherOpenMp(int threads) {
  using Set = void (*)(int);
  static const Set set = [] {
    void *found = ::dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    const bool isOurs = found == nullptr || found == reinterpret_cast<void *>(&omp_get_max_threads);
    return isOurs ? nullptr : reinterpret_cast<Set>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  }();
  if (set) set(threads);
}

} // namespace

void setThreads(int threads) {
  threadsOfCaller = std::max(1, threads);
  tellOtherOpenMp(threadsOfCaller);
}

CallersThreads::CallersThreads() : threads(threadsOfCaller) {}
CallersThreads::~CallersThreads() { threadsOfCaller = threads; }

int currentThreads() {
  if (Team::isWorking()) return 1;
  return threadsOfCaller > 0 ? threadsOfCaller : threadsOfProcess();
}

void detail::parallelRanges(int64_t count, int64_t grain, void (*body)(void *, int64_t, int64_t), void *context) {
  Loop loop{count, (count + grain - 1) / grain, grain, body, context};
  int64_t threads = std::min<int64_t>(currentThreads(), loop.grains);
  if (threads <= 1) return body(context, 0, count);
  Team::ofThisThread().run(runShare, &loop, static_cast<uint32_t>(threads));
}

} // namespace cleave::runtime
