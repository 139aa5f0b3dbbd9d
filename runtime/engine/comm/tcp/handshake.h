// How two processes of a run prove to each other that they belong to it, before anything else passes between them.
// The one that connects speaks first; each proof is an HMAC-SHA256 under the run's secret over both nonces, both ranks,
// the lane, the number of ranks, the port, both plans' digests and the direction.
//
//   joiner                                              listener
//     Hello   ranks, lane, size, port, plan, nonce  ->
//                                                   <-    Answer  rank, plan, nonce
//     Proof                                         ->
//                                                   <-    Proof, or why not
//
// No message has a length of its own, so that a stranger can make nobody wait for, or keep, more than a hundred bytes.
//
//   Handshake handshake = Handshake::asListener(key, {.rank = 0, .size = 4, .plan = digest});
//   while (handshake.state() == Handshake::State::Open) { send(handshake.outgoing()); handshake.take(received); }
#pragma once
#include "runtime/engine/comm/network.h"
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cleave::runtime::tcp {

using PlanDigest = std::array<std::byte, 32>;
using RunId = std::array<std::byte, 16>; // random, of rank 0
PlanDigest digestOf(const std::string &text);

// Who a process is.
struct Self {
  int32_t rank = 0, size = 1;
  PlanDigest plan{};
  std::optional<RunId> run = {}; // none: it is not known yet, and zero for the other side
};

class Handshake {
public:
  enum class State { Open, Met, Refused, Broken }; // broken: the other side is no process of Cleave's
  enum class Refusal : uint32_t { None, Secret, Plan, Size, Taken, Run };

  // `port`: where the joiner listens, 0 where it does not matter.
  static Handshake asJoiner(const RunSecret &key, const Self &self, int32_t peer, int32_t lane, uint16_t port);
  static Handshake asListener(const RunSecret &key, const Self &self);

  State state() const { return at; }
  Refusal refusal() const { return why; }
  // The bytes to send now, in all; the caller counts how many have gone. They only grow.
  std::span<const std::byte> outgoing() const { return out; }
  // How many more bytes the message that is due has: no more are to be received. 0: the other side's turn is over.
  size_t wanted() const;
  void take(std::span<const std::byte> bytes); // at most wanted()
  // The rank that the other side has proved, if it is met or refused for its plan, size or place; before, its claim.
  int32_t peer() const { return theirs; }
  int32_t lane() const { return laneOfBoth; }
  uint16_t port() const { return portOfJoiner; }
  // The listener's: the place is held by another process. Before the joiner's proof is taken.
  void setTaken(bool isTaken) { taken = isTaken; }
  // Whether who speaks holds the secret.
  bool isProved() const { return proved; }

private:
  enum class Due { Hello, Answer, Proof, Verdict, Nothing };
  using Nonce = std::array<std::byte, 32>;
  using Mac = std::array<std::byte, 32>;
  Handshake(const RunSecret &key, const Self &self) : key(key), self(self), ownRun(self.run.value_or(RunId{})) {}
  void put(const void *data, size_t bytes);
  Mac macOf(bool ofJoiner) const;
  void takeHello();
  void takeAnswer();
  void takeProof();
  void takeVerdict();
  Refusal misfit() const;
  void end(State state, Refusal refusal);

  RunSecret key;
  Self self;
  RunId ownRun;
  bool isJoiner = false, taken = false, proved = false;
  Due due = Due::Nothing;
  State at = State::Open;
  Refusal why = Refusal::None;
  int32_t theirs = -1, laneOfBoth = 0, theirSize = 0;
  uint16_t portOfJoiner = 0;
  PlanDigest theirPlan{};
  RunId theirRun{};
  Nonce mine{}, other{};
  std::vector<std::byte> in, out;
};

// "their secrets differ": for messages.
std::string text(Handshake::Refusal refusal);

} // namespace cleave::runtime::tcp
