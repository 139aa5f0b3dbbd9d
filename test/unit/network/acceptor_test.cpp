// Two ranks that go to each other at their own pace.
#include "runtime/engine/comm/tcp/acceptor.h"
#include <gmock/gmock.h>
#include <sodium.h>
#include <unistd.h>

namespace cleave::runtime::tcp {
namespace {

struct Rank {
  Acceptor acceptor;
  int met = -1;
  explicit Rank(const Self &self) : acceptor(RunSecret{}, self) {
    acceptor.onMet = [this](const Met &other) { met = other.peer, ::close(other.socket); };
    acceptor.isTaken = [](int, int) { return false; };
    acceptor.portToTell = [](int) { return Result<uint16_t>(0); };
  }
  Address listen() {
    Address at = resolve("127.0.0.1", 0)->front();
    acceptor.open(listenAt(at));
    return ownAddress(acceptor.listening());
  }
};

class Acceptors : public testing::Test {
  void SetUp() override { ASSERT_GE(sodium_init(), 0); }
};

void expectToMeet(Rank &listener, Rank &joiner) {
  for (int turn = 0; turn < 2000 && (listener.met < 0 || joiner.met < 0); ++turn)
    for (Rank *rank : {&listener, &joiner}) {
      Status status = rank->acceptor.turn();
      ASSERT_TRUE(status) << status.message();
    }
  EXPECT_EQ(listener.met, 3);
  EXPECT_EQ(joiner.met, 1);
}

// Rank 3 has been told the run by rank 0, rank 1 has not heard it yet.
TEST_F(Acceptors, ARankThatDoesNotKnowItsRunYetIsWaitedFor) {
  const RunId run{std::byte{5}};
  Rank parent({.rank = 1, .size = 4}), child({.rank = 3, .size = 4, .run = run});
  child.acceptor.join({.peer = 1, .lane = 2, .to = {parent.listen()}});
  for (int turn = 0; turn < 10; ++turn) {
    Status ofParent = parent.acceptor.turn(), ofChild = child.acceptor.turn();
    ASSERT_TRUE(ofParent) << ofParent.message();
    ASSERT_TRUE(ofChild) << ofChild.message();
  }
  EXPECT_EQ(child.met, -1);
  parent.acceptor.setRun(run);
  expectToMeet(parent, child);
}

TEST_F(Acceptors, ARankOfAnotherRunEndsOnlyItself) {
  Rank parent({.rank = 1, .size = 4, .run = RunId{std::byte{5}}}), late({.rank = 3, .size = 4});
  late.acceptor.join({.peer = 1, .lane = 2, .to = {parent.listen()}});
  Status ofLate;
  for (int turn = 0; turn < 2000 && ofLate; ++turn) {
    Status ofParent = parent.acceptor.turn();
    ASSERT_TRUE(ofParent) << ofParent.message();
    ofLate = late.acceptor.turn();
  }
  EXPECT_THAT(ofLate.message(), testing::HasSubstr("they belong to different runs"));
}

// Fifteen seconds are one attempt to join.
TEST_F(Acceptors, ARankThatStandsStillForLongerThanAnAttemptIsMet) {
  const RunId run{std::byte{5}};
  Rank parent({.rank = 1, .size = 4, .run = run}), child({.rank = 3, .size = 4, .run = run});
  child.acceptor.join({.peer = 1, .lane = 2, .to = {parent.listen()}});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(16);
  while (std::chrono::steady_clock::now() < end) ASSERT_TRUE(child.acceptor.turn());
  EXPECT_THAT(child.acceptor.lastObstacle, testing::HasSubstr("said nothing more"));
  expectToMeet(parent, child);
}

} // namespace
} // namespace cleave::runtime::tcp
