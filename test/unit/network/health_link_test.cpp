// Words of the watch line arrive whole, whoever rests meanwhile.
#include "runtime/engine/comm/tcp/tcp_health_link.h"
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <thread>

namespace cleave::runtime::tcp {
namespace {

// Two ends, the lines' from here on, whose buffers take little, so that words often go in parts.
std::array<int, 2> narrowPair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  for (int end : ends) {
    int few = 1;
    ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
    ::fcntl(end, F_SETFL, O_NONBLOCK);
  }
  return ends;
}

TEST(HealthLink, WordsArriveWholeWhileAnotherThreadRests) {
  std::array<int, 2> ends = narrowPair();
  std::atomic<int64_t> moved = 0;
  TcpHealthLink from(0, {-1, ends[0]}, moved), to(1, {ends[1], -1}, moved);
  std::atomic<bool> done = false;
  std::jthread sends([&] {
    for (int64_t i = 1; i <= 200'000; ++i) {
      HealthMessage word{.progress = i, .window = -i};
      std::memset(word.text, 'a' + int(i % 26), sizeof word.text - 1);
      from.send(1, word);
    }
    done = true;
  });
  std::jthread rests([&] {
    int peer = 0;
    HealthMessage word;
    while (!done) from.rest(std::chrono::milliseconds(1)), (void)from.receive(peer, word);
  });
  int peer = 0;
  int64_t last = 0;
  HealthMessage word;
  for (bool wasDone = false; !wasDone;) {
    wasDone = done;
    while (to.receive(peer, word)) {
      ASSERT_GT(word.progress, last);
      ASSERT_EQ(word.window, -word.progress);
      ASSERT_EQ(std::string(word.text), std::string(sizeof word.text - 1, char('a' + word.progress % 26)));
      last = word.progress;
    }
  }
  EXPECT_GT(last, 0);
  sends.join(), rests.join();
}

TEST(HealthLink, ALineClosesItsSockets) {
  std::array<int, 2> ends = narrowPair();
  std::atomic<int64_t> moved = 0;
  TcpHealthLink to(1, {ends[1], -1}, moved);
  {
    TcpHealthLink from(0, {-1, ends[0]}, moved);
  }
  EXPECT_EQ(::fcntl(ends[0], F_GETFD), -1);
  int peer = 0;
  HealthMessage word;
  EXPECT_FALSE(to.receive(peer, word));
  EXPECT_TRUE(to.hasEnded(0));
}

} // namespace
} // namespace cleave::runtime::tcp
