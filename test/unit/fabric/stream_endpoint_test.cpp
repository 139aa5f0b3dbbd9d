// Endpoints over streams of bytes: two of one process, joined by a socket pair, or by memory that both map.
#include "runtime/engine/comm/control_plane.h"
#include "runtime/engine/comm/socket_link.h"
#include "runtime/engine/comm/stream_endpoint.h"
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <sodium.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>

namespace cleave::runtime::test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytesOf(int64_t count, int seed) {
  Bytes bytes(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 13 + i / 251 + static_cast<size_t>(seed));
  return bytes;
}

struct Two {
  std::atomic<int64_t> moved{0};
  AbortFlag abort;
  std::unique_ptr<StreamEndpoint> ends[2];
  explicit Two(bool isAnnounced = false, uint32_t otherRun = 7, bool isShared = false) {
    EXPECT_GE(sodium_init(), 0);
    int sockets[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
    for (int e : {0, 1}) {
      ends[e] = std::make_unique<StreamEndpoint>(
          StreamEndpoint::Place{.rank = e, .size = 2, .run = e ? otherRun : 7, .isAnnounced = isAnnounced}, moved);
      ends[e]->setLink(1 - e, std::make_unique<SocketLink>(sockets[e]));
    }
    if (isShared) both([&](int e) { EXPECT_TRUE(ends[e]->shareMemory({1 - e}, Deadline(abort, 60))); });
  }
  template <typename Work> void both(Work &&work) {
    std::thread other([&] { work(1); });
    work(0);
    other.join();
  }
  Status exchange(int e, std::vector<Message> sends, std::vector<Message> receives) {
    return runtime::exchange(*ends[e], sends, receives, Deadline(abort, 60));
  }
};

class Streams : public testing::TestWithParam<bool> {}; // shared

TEST_P(Streams, MessagesOfAllSizesArriveInTheirOrder) {
  Two two(false, 7, GetParam());
  const std::vector<int64_t> sizes{1, 3 << 20, 0, 24, (1 << 19) - 24, 1 << 19, 100, 3};
  two.both([&](int e) {
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<Bytes> out, in;
      std::vector<Message> sends, receives;
      for (size_t i = 0; i < sizes.size(); ++i)
        out.push_back(bytesOf(sizes[i], e + static_cast<int>(i))), in.push_back(bytesOf(sizes[i], 99));
      for (size_t i = 0; i < sizes.size(); ++i)
        sends.push_back({1 - e, 5, out[i].data(), sizes[i]}), receives.push_back({1 - e, 5, in[i].data(), sizes[i]});
      Status status = two.exchange(e, sends, receives);
      ASSERT_TRUE(status) << status.message();
      for (size_t i = 0; i < sizes.size(); ++i) EXPECT_TRUE(in[i] == bytesOf(sizes[i], 1 - e + static_cast<int>(i)));
    }
  });
  EXPECT_GT(two.moved, 3 * 2 * std::accumulate(sizes.begin(), sizes.end(), int64_t(0)));
}

TEST_P(Streams, AnotherTagSizeOrRunIsToldByBothNames) {
  struct Wrong {
    uint32_t tag, run;
    int64_t bytes;
    const char *says;
  };
  for (auto [tag, run, bytes, says] :
       {Wrong{6, 7, 64,
              "rank 1 sends message [13], tag 6 of 64 bytes, where message [13], tag 5 of 64 bytes, is expected"},
        Wrong{5, 7, 65,
              "rank 1 sends message [13], tag 5 of 65 bytes, where message [13], tag 5 of 64 bytes, is expected"},
        Wrong{5, 7, 0, "tag 5 of 0 bytes, where message [13], tag 5 of 64 bytes"},
        Wrong{5, 8, 64, "no message of this run's lane"}}) {
    if (GetParam() && run != 7) continue; // the setup sees it
    Two two(false, run, GetParam());
    Bytes out = bytesOf(bytes, 0), in(64);
    Message sent{0, tag, out.data(), bytes};
    two.ends[1]->isend(sent);
    while (!sent.isDone) two.ends[1]->progress();
    Status status = two.exchange(0, {}, {{1, 5, in.data(), 64}});
    EXPECT_THAT(status.message(), testing::ContainsRegex(says)); // two messages set the memory up
  }
}

TEST_P(Streams, WhatAPeerSentBeforeItEndedIsReceived) {
  Two two(false, 7, GetParam());
  Bytes out = bytesOf(1000, 3), in(1000);
  EXPECT_TRUE(two.exchange(1, {{0, 5, out.data(), 1000}}, {}));
  two.ends[1].reset();
  EXPECT_TRUE(two.exchange(0, {}, {{1, 5, in.data(), 1000}}));
  EXPECT_EQ(in, out);
  EXPECT_THAT(two.exchange(0, {}, {{1, 5, in.data(), 1000}}).message(), testing::HasSubstr("rank 1 is gone"));
  EXPECT_EQ(two.ends[0]->lostPeer(), 1);
}

TEST_P(Streams, AnAnnouncedMessageHoldsUpNoOther) {
  Two two(true, 7, GetParam());
  two.both([&](int e) {
    Bytes first = bytesOf(2 << 20, 1), second = bytesOf(2 << 20, 2), in(2 << 20);
    const auto bytes = std::ssize(in);
    if (e == 0) {
      Status sent = two.exchange(0, {{1, 1, first.data(), bytes}, {1, 2, second.data(), bytes}}, {});
      ASSERT_TRUE(sent) << sent.message();
      return;
    }
    ASSERT_TRUE(two.exchange(1, {}, {{0, 2, in.data(), bytes}})); // while nobody takes the one sent first
    EXPECT_TRUE(in == second);
    ASSERT_TRUE(two.exchange(1, {}, {{0, 1, in.data(), bytes}}));
    EXPECT_TRUE(in == first);
  });
}

TEST_P(Streams, AControlPlaneThatLostARankFailsAtOnce) {
  Two two(false, 7, GetParam());
  ControlPlane control(*two.ends[0], two.abort);
  EXPECT_TRUE(control.state());
  const Status first = control.barrier({0.2, "--step-timeout"});
  EXPECT_THAT(first.message(), testing::HasSubstr("rank 1 does not answer for 0.2 s (--step-timeout)"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(control.barrier({600, "--step-timeout"}).message(), first.message());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST_P(Streams, ASilentPeerIsNamedAtTheDeadlineAndAnAbortEndsAWait) {
  Two two(false, 7, GetParam());
  Bytes in(8);
  std::vector<Message> receives{{1, 5, in.data(), 8}};
  EXPECT_THAT(exchange(*two.ends[0], {}, receives, Deadline(two.abort, 0.1)).message(),
              testing::HasSubstr("rank 1 does not answer"));
  std::thread raises([&] { two.abort.raise(), two.ends[0]->notify(); });
  EXPECT_THAT(exchange(*two.ends[0], {}, receives, Deadline(two.abort)).message(), testing::HasSubstr("aborted"));
  raises.join();
}

INSTANTIATE_TEST_SUITE_P(All, Streams, testing::Bool(),
                         [](const auto &info) { return info.param ? "SharedMemory" : "Socket"; });

TEST(SharedRegions, WithoutMemorySocketsStayAndTheReasonIsTold) {
  Two two;
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{0, files.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0); // a memfd is one more
  two.both([&](int e) {
    Result<std::string> obstacle = two.ends[e]->shareMemory({1 - e}, Deadline(two.abort, 60));
    ASSERT_TRUE(obstacle) << obstacle.status().message();
    EXPECT_THAT(*obstacle, testing::StartsWith("rank " + std::to_string(e) + ": memfd_create: "));
  });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  two.both([&](int e) {
    Bytes out = bytesOf(3 << 20, e), in = bytesOf(3 << 20, 99);
    EXPECT_TRUE(two.exchange(e, {{1 - e, 5, out.data(), std::ssize(out)}}, {{1 - e, 5, in.data(), std::ssize(in)}}));
    EXPECT_TRUE(in == bytesOf(3 << 20, 1 - e));
  });
}

TEST(SharedRegions, WhatIsNotOfferedIsNotMapped) {
  ASSERT_GE(sodium_init(), 0);
  Result<std::shared_ptr<SharedRegion>> region = SharedRegion::create(2);
  ASSERT_TRUE(region) << region.status().message();
  EXPECT_TRUE(SharedRegion::open((*region)->offer(1)));
  SharedOffer nonce = (*region)->offer(0), slots = nonce, slot = nonce, file = nonce;
  nonce.nonce[3] ^= std::byte{1}, slots.slots = 3, slot.slot = 2, file.file = 0;
  for (const SharedOffer &offer : {nonce, slots, slot, file, SharedOffer{}}) EXPECT_FALSE(SharedRegion::open(offer));
}

} // namespace
} // namespace cleave::runtime::test
