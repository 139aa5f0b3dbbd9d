// Both sides of the handshake by hand: who holds the secret and says the truth is met, everybody else is not.
#include "runtime/engine/comm/tcp/handshake.h"
#include <algorithm>
#include <gmock/gmock.h>
#include <random>
#include <sodium.h>

namespace cleave::runtime::tcp {
namespace {

using State = Handshake::State;
using Refusal = Handshake::Refusal;
using Bytes = std::vector<std::byte>;

RunSecret keyOf(int number) {
  RunSecret key{};
  key[0] = static_cast<std::byte>(number);
  return key;
}
Self process(int rank, const std::string &plan = "a plan") { return {rank, 4, digestOf(plan)}; }

// One side, with the bytes that it has not yet sent.
struct Side {
  Handshake handshake;
  size_t sent = 0;
  Bytes said() {
    std::span<const std::byte> rest = handshake.outgoing().subspan(sent);
    sent += rest.size();
    return {rest.begin(), rest.end()};
  }
  // In pieces of what is wanted, as a socket is read.
  void hear(const Bytes &bytes, size_t piece = 1000) {
    for (size_t at = 0; at < bytes.size() && handshake.state() == State::Open && handshake.wanted() > 0;) {
      size_t count = std::min({piece, handshake.wanted(), bytes.size() - at});
      handshake.take(std::span(bytes).subspan(at, count));
      at += count;
    }
  }
};

Side joiner(int key = 1, int rank = 3, int lane = 2, int peer = 0, const std::string &plan = "a plan") {
  return {Handshake::asJoiner(keyOf(key), process(rank, plan), peer, lane, 4242)};
}
Side listener(int key = 1, int rank = 0, const std::string &plan = "a plan") {
  return {Handshake::asListener(keyOf(key), process(rank, plan))};
}

void converse(Side &a, Side &b, size_t piece = 1000) {
  for (int turn = 0; turn < 3; ++turn) b.hear(a.said(), piece), a.hear(b.said(), piece);
}

class Handshakes : public testing::Test {
  void SetUp() override { ASSERT_GE(sodium_init(), 0); }
};

TEST_F(Handshakes, TwoOfARunMeet) {
  for (size_t piece : {size_t(1), size_t(7), size_t(1000)}) {
    Side a = joiner(), b = listener();
    converse(a, b, piece);
    EXPECT_EQ(a.handshake.state(), State::Met);
    EXPECT_EQ(b.handshake.state(), State::Met);
    EXPECT_EQ(b.handshake.peer(), 3);
    EXPECT_EQ(b.handshake.lane(), 2);
    EXPECT_EQ(b.handshake.port(), 4242);
    EXPECT_EQ(a.handshake.peer(), 0);
  }
}

TEST_F(Handshakes, AnotherSecretIsRefusedByBothSides) {
  Side a = joiner(1), b = listener(2);
  converse(a, b);
  EXPECT_EQ(a.handshake.refusal(), Refusal::Secret);
  EXPECT_EQ(b.handshake.refusal(), Refusal::Secret);
  EXPECT_FALSE(b.handshake.isProved());
  // A listener that says that all is well, without the secret.
  Side c = joiner(), d = listener();
  d.hear(c.said()), c.hear(d.said());
  d.hear(c.said());
  Bytes verdict = d.said();
  verdict.back() ^= std::byte{1};
  c.hear(verdict);
  EXPECT_EQ(c.handshake.state(), State::Refused);
  EXPECT_EQ(c.handshake.refusal(), Refusal::Secret);
}

TEST_F(Handshakes, WhatWasHeardBeforeProvesNothing) {
  Side a = joiner(), b = listener();
  Bytes hello = a.said();
  b.hear(hello);
  a.hear(b.said());
  Bytes proof = a.said();
  Side again = listener(); // the same words to another nonce
  again.hear(hello), (void)again.said();
  again.hear(proof);
  EXPECT_EQ(again.handshake.refusal(), Refusal::Secret);
}

TEST_F(Handshakes, ARankOrLaneOfItsOwnChoiceIsNotProved) {
  for (size_t at : {8, 16, 20, 24, 28, 60}) { // rank, lane, size, port, plan, run in the hello
    Side a = joiner(), b = listener();
    Bytes hello = a.said();
    hello[at] ^= std::byte{1};
    b.hear(hello);
    a.hear(b.said()), b.hear(a.said());
    EXPECT_EQ(b.handshake.refusal(), Refusal::Secret) << at;
    EXPECT_NE(b.handshake.state(), State::Met) << at;
  }
  Side a = joiner(1, 3, 2, 1), b = listener(); // wants rank 1, meets rank 0
  b.hear(a.said());
  EXPECT_EQ(b.handshake.state(), State::Broken);
}

TEST_F(Handshakes, AnEchoProvesNothing) {
  Side a = joiner();
  Bytes hello = a.said();
  a.hear(hello); // what it said itself, as an answer
  EXPECT_EQ(a.handshake.state(), State::Broken);
  Side b = listener(), c = joiner();
  b.hear(c.said());
  Bytes answer = b.said();
  b.hear(answer); // the listener's own words as a proof
  EXPECT_NE(b.handshake.state(), State::Met);
  // A proof that comes back is the joiner's, which is not the listener's.
  Side d = joiner(), e = listener();
  e.hear(d.said()), d.hear(e.said());
  Bytes proof = d.said();
  proof.insert(proof.begin() + 4, 4, std::byte{0}); // no refusal
  d.hear(proof);
  EXPECT_EQ(d.handshake.refusal(), Refusal::Secret);
}

TEST_F(Handshakes, WhoProvesAndDoesNotFitIsToldWhy) {
  Side a = joiner(1, 3, 2, 0, "another plan"), b = listener();
  converse(a, b);
  EXPECT_EQ(a.handshake.refusal(), Refusal::Plan);
  EXPECT_EQ(b.handshake.refusal(), Refusal::Plan);
  EXPECT_TRUE(b.handshake.isProved());
  Side c = joiner(), d = listener();
  d.handshake.setTaken(true);
  converse(c, d);
  EXPECT_EQ(c.handshake.refusal(), Refusal::Taken);
  Side e{Handshake::asJoiner(keyOf(1), {.rank = 3, .size = 5, .plan = digestOf("a plan")}, 0, 2, 1)}, f = listener();
  converse(e, f);
  EXPECT_EQ(e.handshake.refusal(), Refusal::Size);
}

TEST_F(Handshakes, RanksOfTwoRunsOfOnePlanAreToldSo) {
  Self one = process(3), other = process(0);
  one.run.emplace()[5] = std::byte{1}, other.run.emplace()[5] = std::byte{2};
  Side a{Handshake::asJoiner(keyOf(1), one, 0, 2, 1)}, b{Handshake::asListener(keyOf(1), other)};
  converse(a, b);
  EXPECT_EQ(a.handshake.refusal(), Refusal::Run);
  EXPECT_EQ(b.handshake.refusal(), Refusal::Run);
  other.run = one.run;
  Side c{Handshake::asJoiner(keyOf(1), one, 0, 2, 1)}, d{Handshake::asListener(keyOf(1), other)};
  converse(c, d);
  EXPECT_EQ(c.handshake.state(), State::Met);
}

TEST_F(Handshakes, GarbageIsBrokenAndNeverLong) {
  std::mt19937 random(33);
  for (int turn = 0; turn < 2000; ++turn) {
    Side b = listener();
    Bytes noise(random() % 300);
    for (std::byte &byte : noise) byte = static_cast<std::byte>(random());
    if (turn % 2) { // a right beginning, then noise
      Side a = joiner();
      Bytes hello = a.said();
      hello.resize(random() % (hello.size() + 1));
      noise.insert(noise.begin(), hello.begin(), hello.end());
    }
    b.hear(noise);
    EXPECT_NE(b.handshake.state(), State::Met);
    EXPECT_LE(b.handshake.wanted(), 128u);
    EXPECT_LE(b.handshake.outgoing().size(), 128u);
  }
  Side b = listener();
  std::string get = "GET / HTTP/1.1\r\n\r\n";
  b.hear(
      {reinterpret_cast<const std::byte *>(get.data()), reinterpret_cast<const std::byte *>(get.data()) + get.size()});
  EXPECT_EQ(b.handshake.state(), State::Broken);
}

} // namespace
} // namespace cleave::runtime::tcp
