#include "runtime/engine/comm/tcp/handshake.h"
#include "runtime/base/digest.h"
#include <cstring>
#include <sodium.h>

namespace cleave::runtime::tcp {
namespace {

constexpr uint32_t magicWord = 0x434c5643, protocolVersion = 3;

struct HelloMessage {
  uint32_t magic, version;
  int32_t rank, peer, lane, size;
  uint32_t port;
  PlanDigest plan;
  RunId run;
  std::array<std::byte, 32> nonce;
};
struct AnswerMessage {
  uint32_t magic, version;
  int32_t rank, size;
  PlanDigest plan;
  RunId run;
  std::array<std::byte, 32> nonce;
};
struct ProofMessage {
  uint32_t magic;
  std::array<std::byte, 32> mac;
};
struct VerdictMessage {
  uint32_t magic;
  uint32_t refusal;
  std::array<std::byte, 32> mac; // zero where it is refused
};

// The content of both sides' proofs.
struct Transcript {
  char purpose[16] = "cleave joins"; // no other use of the secret has this
  uint32_t version = protocolVersion, ofJoiner = 0;
  int32_t joiner = 0, listener = 0, lane = 0, sizeOfJoiner = 0, sizeOfListener = 0;
  uint32_t port = 0;
  PlanDigest planOfJoiner{}, planOfListener{};
  RunId runOfJoiner{}, runOfListener{};
  std::array<std::byte, 32> nonceOfJoiner{}, nonceOfListener{};
};
static_assert(sizeof(HelloMessage) == 7 * 4 + 80 && sizeof(AnswerMessage) == 4 * 4 + 80);
static_assert(sizeof(Transcript) == 16 + 8 * 4 + 4 * 32 + 2 * 16); // no padding, whose bytes would be anything

template <typename Message> Message messageOf(const std::vector<std::byte> &bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

} // namespace

PlanDigest digestOf(const std::string &text) {
  PlanDigest digest;
  std::memcpy(digest.data(), Digest().add(text).finish().data(), digest.size());
  return digest;
}

Handshake Handshake::asJoiner(const RunSecret &key, const Self &self, int32_t peer, int32_t lane, uint16_t port) {
  Handshake handshake(key, self);
  handshake.isJoiner = true;
  handshake.due = Due::Answer;
  handshake.theirs = peer, handshake.laneOfBoth = lane, handshake.portOfJoiner = port;
  randombytes_buf(handshake.mine.data(), handshake.mine.size());
  HelloMessage hello{magicWord, protocolVersion, self.rank,        peer,          lane, self.size,
                     port,      self.plan,       handshake.ownRun, handshake.mine};
  handshake.put(&hello, sizeof hello);
  return handshake;
}

Handshake Handshake::asListener(const RunSecret &key, const Self &self) {
  Handshake handshake(key, self);
  handshake.due = Due::Hello;
  randombytes_buf(handshake.mine.data(), handshake.mine.size());
  return handshake;
}

void Handshake::put(const void *data, size_t bytes) {
  const auto *from = static_cast<const std::byte *>(data);
  out.insert(out.end(), from, from + bytes);
}

size_t Handshake::wanted() const {
  switch (due) {
  case Due::Hello:
    return sizeof(HelloMessage) - in.size();
  case Due::Answer:
    return sizeof(AnswerMessage) - in.size();
  case Due::Proof:
    return sizeof(ProofMessage) - in.size();
  case Due::Verdict:
    return sizeof(VerdictMessage) - in.size();
  case Due::Nothing:
    break;
  }
  return 0;
}

void Handshake::take(std::span<const std::byte> bytes) {
  in.insert(in.end(), bytes.begin(), bytes.end());
  if (in.size() >= sizeof magicWord && messageOf<uint32_t>(in) != magicWord) return end(State::Broken, Refusal::None);
  if (at != State::Open || wanted() > 0) return;
  switch (due) {
  case Due::Hello:
    takeHello();
    break;
  case Due::Answer:
    takeAnswer();
    break;
  case Due::Proof:
    takeProof();
    break;
  case Due::Verdict:
    takeVerdict();
    break;
  case Due::Nothing:
    break;
  }
  in.clear();
}

Handshake::Mac Handshake::macOf(bool ofJoiner) const {
  Transcript over;
  over.ofJoiner = ofJoiner ? 1 : 0;
  over.joiner = isJoiner ? self.rank : theirs, over.listener = isJoiner ? theirs : self.rank;
  over.sizeOfJoiner = isJoiner ? self.size : theirSize, over.sizeOfListener = isJoiner ? theirSize : self.size;
  over.lane = laneOfBoth, over.port = portOfJoiner;
  over.planOfJoiner = isJoiner ? self.plan : theirPlan, over.planOfListener = isJoiner ? theirPlan : self.plan;
  over.runOfJoiner = isJoiner ? ownRun : theirRun, over.runOfListener = isJoiner ? theirRun : ownRun;
  over.nonceOfJoiner = isJoiner ? mine : other, over.nonceOfListener = isJoiner ? other : mine;
  Mac mac;
  static_assert(sizeof(Mac) == crypto_auth_hmacsha256_BYTES && sizeof(RunSecret) == crypto_auth_hmacsha256_KEYBYTES);
  crypto_auth_hmacsha256(reinterpret_cast<unsigned char *>(mac.data()), reinterpret_cast<const unsigned char *>(&over),
                         sizeof over, reinterpret_cast<const unsigned char *>(key.data()));
  return mac;
}

void Handshake::takeHello() {
  auto hello = messageOf<HelloMessage>(in);
  if (hello.version != protocolVersion || hello.peer != self.rank || hello.rank < 0 || hello.rank == self.rank ||
      hello.lane < 0 || hello.port > 65535)
    return end(State::Broken, Refusal::None);
  theirs = hello.rank, laneOfBoth = hello.lane, theirSize = hello.size, theirPlan = hello.plan, theirRun = hello.run,
  other = hello.nonce;
  portOfJoiner = static_cast<uint16_t>(hello.port);
  AnswerMessage answer{magicWord, protocolVersion, self.rank, self.size, self.plan, ownRun, mine};
  put(&answer, sizeof answer);
  due = Due::Proof;
}

void Handshake::takeAnswer() {
  auto answer = messageOf<AnswerMessage>(in);
  // The nonce that this side sent would make its own proof the other side's.
  if (answer.version != protocolVersion || answer.rank != theirs || answer.nonce == mine)
    return end(State::Broken, Refusal::None);
  theirSize = answer.size, theirPlan = answer.plan, theirRun = answer.run, other = answer.nonce;
  ProofMessage proof{magicWord, macOf(true)};
  put(&proof, sizeof proof);
  due = Due::Verdict;
}

Handshake::Refusal Handshake::misfit() const {
  if (theirPlan != self.plan) return Refusal::Plan;
  if (theirSize != self.size || theirs >= self.size) return Refusal::Size;
  if (theirRun != ownRun) return Refusal::Run;
  return taken ? Refusal::Taken : Refusal::None;
}

void Handshake::takeProof() {
  Mac wantedMac = macOf(true);
  auto proof = messageOf<ProofMessage>(in);
  proved = sodium_memcmp(proof.mac.data(), wantedMac.data(), wantedMac.size()) == 0;
  Refusal refusal = proved ? misfit() : Refusal::Secret;
  VerdictMessage verdict{magicWord, static_cast<uint32_t>(refusal), refusal == Refusal::None ? macOf(false) : Mac{}};
  put(&verdict, sizeof verdict);
  end(refusal == Refusal::None ? State::Met : State::Refused, refusal);
}

void Handshake::takeVerdict() {
  auto verdict = messageOf<VerdictMessage>(in);
  if (verdict.refusal > static_cast<uint32_t>(Refusal::Run)) return end(State::Broken, Refusal::None);
  if (verdict.refusal != 0) return end(State::Refused, static_cast<Refusal>(verdict.refusal));
  Mac wantedMac = macOf(false);
  proved = sodium_memcmp(verdict.mac.data(), wantedMac.data(), wantedMac.size()) == 0;
  if (!proved) return end(State::Refused, Refusal::Secret);
  Refusal refusal = misfit();
  end(refusal == Refusal::None ? State::Met : State::Refused, refusal);
}

void Handshake::end(State state, Refusal refusal) { at = state, why = refusal, due = Due::Nothing; }

std::string text(Handshake::Refusal refusal) {
  switch (refusal) {
  case Handshake::Refusal::Secret:
    return "their secrets differ (CLEAVE_SECRET, --secret-file)";
  case Handshake::Refusal::Plan:
    return "the processes of this run were given different plans";
  case Handshake::Refusal::Size:
    return "they count different numbers of processes (WORLD_SIZE)";
  case Handshake::Refusal::Taken:
    return "another process has this rank (RANK)";
  case Handshake::Refusal::Run:
    return "they belong to different runs";
  case Handshake::Refusal::None:
    break;
  }
  return "no reason is given";
}

} // namespace cleave::runtime::tcp
