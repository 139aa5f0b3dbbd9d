// Loops over the threads of one rank. Every rank thread has its own team (team.h), which oneDNN uses too.
//
//   setThreads(2);                                          // once, on the rank's thread
//   parallelFor(1000, 64, [&](int64_t b, int64_t e) {...}); // [0,512) and [512,1000)
#pragma once
#include <cstdint>
#include <type_traits>

namespace cleave::runtime {

// Threads that the calling thread's parallel loops, and its oneDNN calls, use.
void setThreads(int threads);
int currentThreads();

// Gives the calling thread back what it used before, at the end of a scope: a caller's thread is the caller's.
class CallersThreads {
public:
  CallersThreads();
  ~CallersThreads();
  CallersThreads(const CallersThreads &) = delete;

private:
  const int threads;
};

namespace detail {
void parallelRanges(int64_t count, int64_t grain, void (*body)(void *, int64_t, int64_t), void *context);
}

// Calls body(begin, end) over disjoint ranges that cover [0, count), cut only at multiples of `grain`.
// Within another parallelFor it runs on the calling thread. The cut depends on the thread count alone.
template <typename Body> void parallelFor(int64_t count, int64_t grain, Body &&body) {
  if (count <= 0) return;
  using Plain = std::remove_reference_t<Body>;
  detail::parallelRanges(
      count, grain < 1 ? 1 : grain,
      [](void *context, int64_t begin, int64_t end) { (*static_cast<Plain *>(context))(begin, end); },
      const_cast<void *>(static_cast<const void *>(&body)));
}

} // namespace cleave::runtime
