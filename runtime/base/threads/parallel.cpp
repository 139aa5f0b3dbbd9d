#include "runtime/base/threads/parallel.h"
#include "runtime/base/threads/team.h"
#include "runtime/base/threads/thread_count.h"
#include <algorithm>

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

} // namespace

void setThreads(int threads) { threadsOfCaller = std::max(1, threads); }

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
