// Fork-join parallelism on GNU's OpenMP runtime, the one that oneDNN's build uses: kernels and oneDNN then share one
// pool of threads a rank. clang compiles `#pragma omp` only for LLVM's runtime, so the runtime's entry is called
// directly.
//
//   parallelFor(4, [&](int part, int parts) { ... });   // part 0 runs on the calling thread
#pragma once
#include <type_traits>

extern "C" {
void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
void omp_set_num_threads(int threads); // for the calling thread
int omp_get_max_threads(void);
}

namespace cleave::runtime {

// Runs body(part, parts) once for each part, on `threads` threads (parts may be fewer if the system refuses threads).
template <typename Body> void parallelFor(int threads, Body &&body) {
  if (threads <= 1) {
    body(0, 1);
    return;
  }
  using Plain = std::remove_reference_t<Body>;
  GOMP_parallel([](void *data) { (*static_cast<Plain *>(data))(omp_get_thread_num(), omp_get_num_threads()); }, &body,
                static_cast<unsigned>(threads), 0);
}

} // namespace cleave::runtime
