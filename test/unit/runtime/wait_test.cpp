// Threads that wait for each other: none sleeps through what it waits for.
#include "runtime/threads/wait.h"
#include <chrono>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace cleave::runtime {
namespace {

// A ball that goes round: each player waits for its bell until the ball is its own. How long a player holds it decides
// whether the others spin, yield or sleep.
int64_t play(int players, int rounds, std::chrono::microseconds hold) {
  AbortFlag abort;
  std::vector<Bell> bells(static_cast<size_t>(players));
  std::atomic<int64_t> ball{0};
  auto player = [&](int self) {
    for (int round = 0; round < rounds; ++round) {
      int64_t mine = int64_t(round) * players + self;
      for (uint32_t heard; heard = bells[static_cast<size_t>(self)].heard(), ball.load() != mine;)
        if (!bells[static_cast<size_t>(self)].wait(heard, abort)) return;
      if (hold.count() > 0) std::this_thread::sleep_for(hold);
      ball.store(mine + 1);
      bells[static_cast<size_t>((self + 1) % players)].ring();
    }
  };
  std::vector<std::thread> threads;
  for (int p = 0; p < players; ++p) threads.emplace_back(player, p);
  for (std::thread &thread : threads) thread.join();
  return ball.load();
}

TEST(Wait, NobodySleepsThroughABell) {
  for (bool outnumber : {false, true}) {
    setThreadsOutnumberCores(outnumber);
    EXPECT_EQ(play(3, 300, std::chrono::microseconds(0)), 900);
    // Here all but one sleep. Lost wakes would take 50 ms each, until the abort flag is looked at: 22 s.
    auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(play(3, 150, std::chrono::microseconds(1000)), 450);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  }
  setThreadsOutnumberCores(false);
}

TEST(Wait, AnAbortEndsAWaitForABell) {
  AbortFlag abort;
  Bell bell;
  bool rung = true;
  std::thread waiting([&] { rung = bell.wait(bell.heard(), abort); });
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
