// Words of a run's processes to each other when they meet over TCP. The input's first byte says who hears the rest: a
// listener or a joiner, from a stranger; or two of a run, from each other, with bytes changed on the way (a byte for
// the place, one for the change). Nobody meets a stranger, nobody has met whose words were changed, and nobody is made
// to send much.
#include "runtime/engine/comm/tcp/handshake.h"
#include "test/fuzz/target.h"
#include <map>
#include <sodium.h>

namespace {

using namespace cleave;
using runtime::tcp::Handshake;

// Numbers that look random and are the same for every input, so that a fault comes again.
uint64_t drawn = 0;
void draw(void *to, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    drawn = drawn * 6364136223846793005 + 1442695040888963407;
    static_cast<uint8_t *>(to)[i] = static_cast<uint8_t>(drawn >> 56);
  }
}
uint32_t drawWord() {
  uint32_t word = 0;
  draw(&word, sizeof word);
  return word;
}
const char *drawnName() { return "counted"; }
randombytes_implementation counted = {drawnName, drawWord, nullptr, nullptr, draw, nullptr};

Handshake listener() {
  return Handshake::asListener({std::byte(7)}, {.rank = 0, .size = 4, .plan = runtime::tcp::digestOf("a plan")});
}
Handshake joiner() {
  return Handshake::asJoiner({std::byte(7)}, {.rank = 3, .size = 4, .plan = runtime::tcp::digestOf("a plan")}, 0, 2,
                             4242);
}

void hearStranger(Handshake hearer, std::span<const std::byte> words) {
  while (!words.empty() && hearer.wanted() > 0) {
    const size_t count = std::min(hearer.wanted(), words.size());
    hearer.take(words.first(count));
    words = words.subspan(count);
  }
  fuzz::require(hearer.state() != Handshake::State::Met && !hearer.isProved(), "meets a stranger");
  fuzz::require(hearer.outgoing().size() <= 256, "sends a stranger much");
}

using Changes = std::map<uint8_t, uint8_t>; // of bytes by their place

// Passes on what `from` has to say; true: something of it was changed.
bool pass(const Handshake &from, size_t &passed, Handshake &to, const Changes &changes) {
  bool isChanged = false;
  while (passed < from.outgoing().size() && to.wanted() > 0) {
    std::byte word = from.outgoing()[passed];
    auto change = changes.find(static_cast<uint8_t>(passed));
    if (change != changes.end()) word ^= std::byte(change->second);
    isChanged |= change != changes.end() && change->second != 0;
    to.take({&word, 1});
    ++passed;
  }
  return isChanged;
}

void meetThrough(const Changes &ofJoiner, const Changes &ofListener) {
  Handshake first = joiner(), second = listener();
  bool joinerIsChanged = false, listenerIsChanged = false;
  size_t fromJoiner = 0, fromListener = 0;
  for (int turn = 0; turn < 4; ++turn) {
    joinerIsChanged |= pass(first, fromJoiner, second, ofJoiner);
    listenerIsChanged |= pass(second, fromListener, first, ofListener);
  }
  const bool isChanged = joinerIsChanged || listenerIsChanged;
  fuzz::require(first.state() != Handshake::State::Met || !isChanged, "a joiner meets through changed words");
  fuzz::require(second.state() != Handshake::State::Met || !joinerIsChanged, "a listener meets through changed words");
  fuzz::require(isChanged || (first.state() == Handshake::State::Met && second.state() == Handshake::State::Met),
                "two of a run do not meet");
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const bool isReady = randombytes_set_implementation(&counted) == 0 && sodium_init() == 0;
  fuzz::require(isReady, "libsodium cannot begin");
  if (size == 0) return -1;
  drawn = 1;
  const auto words = std::as_bytes(std::span(data + 1, size - 1));
  const int way = data[0] % 3;
  if (way == 0) hearStranger(listener(), words);
  if (way == 1) hearStranger(joiner(), words);
  if (way == 2) {
    Changes changes[2];
    for (size_t i = 1; i + 2 < size; i += 3) changes[data[i] % 2][data[i + 1]] = data[i + 2];
    meetThrough(changes[0], changes[1]);
  }
  return 0;
}
