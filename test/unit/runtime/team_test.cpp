// A rank's threads: every share is done once, whoever does it, and oneDNN's calls of OpenMP mean what libgomp's do.
#include "runtime/base/threads/openmp.h"
#include "runtime/base/threads/parallel.h"
#include "runtime/base/threads/team.h"
#include "runtime/base/threads/thread_count.h"
#include "runtime/engine/device/cpu/onednn.h"
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace cleave::runtime {
namespace {

// Runs `body` as OpenMP's callers do.
void inParallel(unsigned threads, std::function<void()> body) {
  auto call = [](void *data) { (*static_cast<std::function<void()> *>(data))(); };
  openmp::parallelStart(call, &body, threads);
  body();
  openmp::parallelEnd();
}

TEST(Team, EveryShareIsDoneOnce) {
  for (uint32_t shares : {1u, 2u, 3u, 8u, 5u})
    for (int round = 0; round < 2000; ++round) {
      std::vector<std::atomic<int>> times(shares);
      auto body = [](void *data) { ++(*static_cast<std::vector<std::atomic<int>> *>(data))[Team::share()]; };
      Team::ofThisThread().run(body, &times, shares);
      for (std::atomic<int> &count : times) ASSERT_EQ(count.load(), 1);
    }
}

TEST(Team, ManyTeamsWorkAtOnce) {
  std::vector<std::thread> ranks;
  std::atomic<int64_t> sum{0};
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&] {
      setThreads(3);
      for (int round = 0; round < 500; ++round)
        parallelFor(1000, 10, [&](int64_t begin, int64_t end) { sum += end - begin; });
    });
  for (std::thread &rank : ranks) rank.join();
  EXPECT_EQ(sum.load(), 4 * 500 * 1000);
}

TEST(Team, SharesMeet) {
  // Whoever passes a meeting has seen what all others did before it.
  for (uint32_t shares : {2u, 4u})
    for (int round = 0; round < 300; ++round) {
      struct Work {
        std::atomic<uint32_t> before{0}, wrong{0};
      } work;
      auto body = [](void *data) {
        Work &own = *static_cast<Work *>(data);
        for (uint32_t meeting = 1; meeting <= 3; ++meeting) {
          ++own.before;
          Team::meet();
          if (own.before.load() < meeting * Team::shares()) ++own.wrong;
          Team::meet();
        }
      };
      Team::ofThisThread().run(body, &work, shares);
      ASSERT_EQ(work.wrong.load(), 0u);
      ASSERT_EQ(work.before.load(), 3 * shares);
    }
}

TEST(Team, WorkWithinAShareIsNotCutAgain) {
  setThreads(4);
  EXPECT_EQ(openmp::mostThreads(), 4);
  EXPECT_EQ(openmp::isParallel(), 0);
  std::atomic<int> inner{0}, cut{0};
  inParallel(3, [&] {
    const int outside = openmp::threadNumber();
    EXPECT_EQ(openmp::threadCount(), 3);
    EXPECT_EQ(openmp::isParallel(), 1);
    inParallel(2, [&] {
      ++inner;
      if (openmp::threadCount() != 1 || openmp::threadNumber() != 0) ++cut;
    });
    parallelFor(100, 1, [&](int64_t begin, int64_t end) {
      if (begin != 0 || end != 100) ++cut;
    });
    EXPECT_EQ(openmp::threadNumber(), outside);
  });
  EXPECT_EQ(inner.load(), 3);
  EXPECT_EQ(cut.load(), 0);
  EXPECT_EQ(openmp::isParallel(), 0);
  EXPECT_EQ(openmp::threadCount(), 1);
}

TEST(Team, StaticLoopsGiveEveryIterationOnce) {
  struct Range {
    long start, end, step, chunk;
  };
  for (Range range : {Range{0, 100, 1, 0}, Range{0, 100, 1, 7}, Range{3, 50, 4, 0}, Range{3, 50, 4, 2},
                      Range{10, -10, -3, 0}, Range{10, -10, -3, 2}, Range{0, 0, 1, 0}, Range{0, 2, 1, 0}})
    for (unsigned threads : {1u, 2u, 3u, 5u}) {
      std::multiset<long> expected, got;
      for (long i = range.start; range.step > 0 ? i < range.end : i > range.end; i += range.step) expected.insert(i);
      std::mutex lock;
      inParallel(threads, [&] {
        long first = 0, last = 0;
        if (openmp::loopStart(range.start, range.end, range.step, range.chunk, &first, &last)) do {
            std::lock_guard guard(lock);
            for (long i = first; range.step > 0 ? i < last : i > last; i += range.step) got.insert(i);
          } while (openmp::loopNext(&first, &last));
        openmp::loopEnd();
        openmp::barrier();
      });
      EXPECT_EQ(got, expected) << threads << " threads, step " << range.step << ", chunk " << range.chunk;
    }
}

// libgomp would make as many threads as there are cores.
TEST(Team, OneDnnRunsOnIt) {
  constexpr int64_t size = 512;
  const int threads = boundCores() + 3;
  auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  ASSERT_TRUE(openOneDnn());
  std::thread([&] {
    setThreads(threads);
    const dnnl::memory::desc square({size, size}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab);
    dnnl::memory a(square, cpuEngine()), b(square, cpuEngine()), c(square, cpuEngine());
    dnnl::stream stream(cpuEngine());
    const auto before = count();
    dnnl::matmul(dnnl::matmul::primitive_desc(cpuEngine(), square, square, square))
        .execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    EXPECT_EQ(count() - before, threads - 1);
  }).join();
}

// The C library, and this test's own program, call no OpenMP; oneDNN does (commands_test.cpp runs its primitives).
TEST(Team, ALibraryWithoutOpenMpIsSaid) {
  EXPECT_THAT(openmp::bind(reinterpret_cast<const void *>(&::strtol)).message(), testing::HasSubstr("calls nothing"));
  EXPECT_THAT(openmp::bind(nullptr).message(), testing::HasSubstr("is not loaded"));
}

TEST(ThreadCount, TheVariableIsDividedByTheRanks) {
  const char *before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before ? before : "";
  ::setenv("OMP_NUM_THREADS", "6,2", 1);
  EXPECT_EQ(threadsOfRank(1, 1), 6);
  EXPECT_EQ(threadsOfRank(4, 1), 1);
  EXPECT_EQ(threadsOfRank(3, 8), 2); // the variable is the process's own
  ::setenv("OMP_NUM_THREADS", "none", 1);
  EXPECT_EQ(threadsOfRank(1, 1), availableCores());
  EXPECT_EQ(threadsOfRank(1000, 1), 1);
  before ? ::setenv("OMP_NUM_THREADS", kept.c_str(), 1) : ::unsetenv("OMP_NUM_THREADS");
}

} // namespace
} // namespace cleave::runtime
