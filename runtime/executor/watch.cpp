#include "runtime/executor/watch.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

namespace cleave::runtime {

namespace {
constexpr auto restOfLine = std::chrono::milliseconds(20); // of one that wakes nobody; so often the watch may stop
constexpr auto causeTime = std::chrono::seconds(5);
constexpr double leavingSeconds = 2, stuckSeconds = 10, secondsBetweenNotes = 60;
constexpr int failedStatus = 4;

std::chrono::milliseconds periodFor(double timeoutSeconds) {
  return std::chrono::milliseconds(std::clamp<int64_t>(static_cast<int64_t>(timeoutSeconds * 1000 / 20), 50, 500));
}

std::string hostName() {
  char name[64] = "?";
  ::gethostname(name, sizeof name - 1);
  return name;
}

template <size_t Bytes> void copyText(char (&to)[Bytes], const std::string &text) {
  size_t count = std::min(text.size(), Bytes - 1);
  std::memcpy(to, text.data(), count);
  std::memset(to + count, 0, Bytes - count);
}
} // namespace

Watch::Watch(WatchLine *line, WatchOptions given)
    : line(line), options(std::move(given)), period(periodFor(options.timeoutSeconds)),
      liveness(static_cast<int>(options.groups.size()), options.timeoutSeconds, !line || line->rank() == 0),
      stragglers(options.groups), toldAgo(options.groups.size(), secondsBetweenNotes) {
  // A rank knows of rank 0 only, which knows of all.
  for (int rank = 1; line && line->rank() != 0 && rank < line->size(); ++rank)
    if (rank != line->rank()) liveness.left(rank);
  thread = std::thread([this] { run(); });
}

Watch::~Watch() {
  {
    std::lock_guard guard(lock);
    stopping = true;
  }
  stop.notify_all();
  thread.join();
}

void Watch::run() {
  Clock::time_point last = Clock::now(), beat = last;
  double leaving = 0;
  std::unique_lock guard(lock);
  while (true) {
    Clock::time_point now = Clock::now();
    double awake = std::min<double>(std::chrono::duration<double>(now - last).count(),
                                    4 * std::chrono::duration<double>(period).count());
    last = now;
    if (stopping) leaving += awake;
    if (stopping && (mayLeave() || (line && line->rank() != 0 && leaving > leavingSeconds))) return;
    liveness.pass(awake);
    for (double &ago : toldAgo) ago += awake;
    if (now >= beat || stopping) {
      tellOwn();
      beat = now + period;
    }
    turn(guard, awake);
    if (!line) {
      stop.wait_for(guard, period, [&] { return stopping; });
      continue;
    }
    guard.unlock();
    line->rest(std::min(restOfLine, period));
    guard.lock();
  }
}

void Watch::turn(std::unique_lock<std::mutex> &guard, double awake) {
  if (line) receiveAll();
  if (line) checkEnds();
  if (why.empty() && (!line || line->rank() == 0 || !liveness.hasLeft(0)))
    if (std::optional<std::string> found = liveness.judge()) learn(*found, -1);
  bool isIn = std::ranges::any_of(own, [](const RankReport &report) {
    return report.state == RankReport::Waiting || report.state == RankReport::Busy;
  });
  if (!why.empty() && isIn && !options.aborted->raised()) {
    std::string text = why;
    guard.unlock();
    options.onEnd(text);
    guard.lock();
  }
  endIfStuck(awake);
  if (!line || line->rank() == 0) tellStragglers();
}

// A thread of this process that does not come back from what it does holds the process: it ends without it.
void Watch::endIfStuck(double awake) {
  bool isBusy = std::ranges::any_of(own, [](const RankReport &report) { return report.state == RankReport::Busy; });
  endingFor = options.aborted->raised() && isBusy && !why.empty() ? endingFor + awake : 0;
  if (endingFor < stuckSeconds) return;
  fmt::print(stderr, "cleave: error: {}\n", why);
  std::fflush(stderr);
  ::_exit(failedStatus);
}

void Watch::tellOwn() {
  static const std::string host = hostName();
  own = options.reports();
  for (size_t i = 0; i < own.size(); ++i) {
    own[i].host = host;
    if (line) own[i].progress += line->movedBytes();
    liveness.heard(options.local[i], own[i]);
    stragglers.heard(options.local[i], own[i].window, own[i].ownSeconds);
  }
  if (!line || options.aborted->raised()) return; // why has been said
  const RankReport &mine = own.front();
  WatchWord word{.kind = WatchWord::Beat,
                 .state = mine.state,
                 .progress = mine.progress,
                 .window = mine.window,
                 .ownSeconds = mine.ownSeconds};
  if (stopping && line->rank() != 0) word.kind = WatchWord::Bye;
  copyText(word.host, mine.host);
  copyText(word.text, mine.where);
  sendAll(word);
}

void Watch::sendAll(const WatchWord &word) {
  for (int peer = 0; peer < line->size(); ++peer)
    if (peer != line->rank() && (line->rank() == 0 || peer == 0) && !liveness.hasLeft(peer)) line->send(peer, word);
}

void Watch::receiveAll() {
  int peer = 0;
  WatchWord word;
  while (line->receive(peer, word)) take(peer, word);
}

void Watch::take(int peer, const WatchWord &word) {
  if (word.kind == WatchWord::End) return learn(word.text, peer);
  if (word.kind == WatchWord::Bye) {
    if (line->rank() == 0) line->send(peer, {.kind = WatchWord::Bye});
    return liveness.left(peer);
  }
  liveness.heard(peer, {static_cast<RankReport::State>(word.state), word.progress, word.window, word.ownSeconds,
                        word.host, word.text});
  stragglers.heard(peer, word.window, word.ownSeconds);
}

// Connections that have ended without a word.
void Watch::checkEnds() {
  for (int peer = 0; peer < line->size(); ++peer) {
    if (peer == line->rank() || liveness.hasLeft(peer) || !line->hasEnded(peer)) continue;
    learn(fmt::format("rank {} is gone ({})", peer, liveness.lastOf(peer)), peer);
    liveness.left(peer);
  }
}

// The first cause stays, and rank 0 tells it to all others.
void Watch::learn(const std::string &cause, int from) {
  if (!why.empty() || options.aborted->raised()) return;
  why = cause;
  known.notify_all();
  if (!line || line->rank() != 0) return;
  WatchWord word{.kind = WatchWord::End};
  copyText(word.text, why);
  for (int peer = 1; peer < line->size(); ++peer)
    if (peer != from) line->send(peer, word);
}

void Watch::announce(const std::string &message) {
  std::lock_guard guard(lock);
  if (!why.empty()) return;
  why = message;
  if (!line) return;
  WatchWord word{.kind = WatchWord::End};
  copyText(word.text, message);
  sendAll(word);
}

std::string Watch::awaitCause() {
  std::unique_lock guard(lock);
  if (line) known.wait_for(guard, causeTime, [&] { return !why.empty(); });
  return why;
}

void Watch::tellStragglers() {
  for (const Straggler &slow : stragglers.found()) {
    double &ago = toldAgo[static_cast<size_t>(slow.rank)];
    if (!options.tell || ago < secondsBetweenNotes) continue;
    ago = 0;
    options.tell(fmt::format(
        "rank {} ({}) takes {:.1f} times the median of the ranks with its program: {:.1f} ms a step "
        "of its own, {:.1f} ms are the median over {} steps",
        slow.rank, liveness.hostOf(slow.rank), slow.ratio, 1e3 * slow.seconds, 1e3 * slow.median, stepsOfWindow));
  }
}

bool Watch::mayLeave() {
  if (!line || options.aborted->raised()) return true;
  if (line->rank() != 0) return liveness.hasLeft(0);
  if (liveness.isRunning()) return false;
  sendAll({.kind = WatchWord::Bye});
  return true;
}

} // namespace cleave::runtime
