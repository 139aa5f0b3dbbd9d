// Threads that wait for each other: none sleeps through what it waits for.
#include "runtime/base/threads/wait.h"
#include <chrono>
#include <condition_variable>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>
#include <vector>

namespace cleave::runtime {
namespace {

// Where nobody asks for a while, the process was suspended.
TEST(Deadline, CountsTheTimeThatItIsAwake) {
  AbortFlag abort;
  const Deadline deadline(abort, 0.6), endless(abort);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_FALSE(deadline.isOver());
  const auto start = std::chrono::steady_clock::now();
  while (!deadline.isOver()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(300));
  EXPECT_FALSE(endless.isOver());
  abort.raise();
  EXPECT_TRUE(endless.isOver());
}

// A ball that goes round: each player waits for its signal until the ball is its own. How long a player holds it
// decides whether the others spin, yield or sleep. Seconds for so many rounds.
double play(int players, int rounds, std::chrono::microseconds hold) {
  AbortFlag abort;
  std::vector<WakeSignal> signals(static_cast<size_t>(players));
  std::atomic<int64_t> ball{0};
  auto player = [&](int self) {
    for (int round = 0; round < rounds; ++round) {
      int64_t mine = int64_t(round) * players + self;
      for (uint32_t heard; heard = signals[static_cast<size_t>(self)].epoch(), ball.load() != mine;)
        if (!signals[static_cast<size_t>(self)].wait(heard, abort)) return;
      if (hold.count() > 0) std::this_thread::sleep_for(hold);
      ball.store(mine + 1);
      signals[static_cast<size_t>((self + 1) % players)].notify();
    }
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int p = 0; p < players; ++p) threads.emplace_back(player, p);
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(ball.load(), int64_t(rounds) * players);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The same game by the standard library's means.
double playByConditions(int players, int rounds, std::chrono::microseconds hold) {
  std::mutex lock;
  std::condition_variable passed;
  int64_t ball = 0;
  auto player = [&](int self) {
    for (int round = 0; round < rounds; ++round) {
      std::unique_lock guard(lock);
      passed.wait(guard, [&] { return ball == int64_t(round) * players + self; });
      guard.unlock();
      std::this_thread::sleep_for(hold);
      guard.lock();
      ++ball;
      passed.notify_all();
    }
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int p = 0; p < players; ++p) threads.emplace_back(player, p);
  for (std::thread &thread : threads) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Wait, NobodySleepsThroughABell) {
  for (bool outnumber : {false, true}) {
    setThreadsOutnumberCores(outnumber);
    play(3, 300, std::chrono::microseconds(0));
    // Here all but one sleep. A lost wake takes 50 ms, until the abort flag is looked at, where a turn takes 1 ms. Others
    // may take the cores during one of the games, but hardly three times.
    const std::chrono::milliseconds hold(1);
    auto isSlow = [&] { return play(3, 150, hold) >= 10 * playByConditions(3, 150, hold); };
    EXPECT_FALSE(isSlow() && isSlow() && isSlow());
  }
  setThreadsOutnumberCores(false);
}

TEST(Wait, AnAbortEndsAWaitForABell) {
  AbortFlag abort;
  WakeSignal signal;
  bool rung = true;
  std::thread waiting([&] { rung = signal.wait(signal.epoch(), abort); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  abort.raise();
  waiting.join();
  EXPECT_FALSE(rung);
}

TEST(Wait, ABarrierOpensForTheLastMember) {
  Barrier barrier(2);
  bool isLast = true;
  for (int round = 0; round < 3; ++round) {
    uint32_t first = barrier.arrive(isLast);
    EXPECT_FALSE(isLast);
    EXPECT_FALSE(barrier.passed(first));
    uint32_t second = barrier.arrive(isLast);
    EXPECT_TRUE(isLast);
    EXPECT_TRUE(barrier.passed(first) && barrier.passed(second));
  }
}

} // namespace
} // namespace cleave::runtime
