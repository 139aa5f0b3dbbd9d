#include "runtime/engine/health/watch.h"
#include "runtime/engine/comm/tree_operation.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

namespace cleave::runtime {

namespace {
constexpr auto restOfLine = std::chrono::milliseconds(20); // of one that wakes nobody; so often the watch may stop
constexpr auto causeTime = std::chrono::seconds(5);
constexpr double leavingSeconds = 2, stuckSeconds = 10, secondsBetweenNotes = 60;

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

Watch::Watch(HealthLink *line, WatchOptions given)
    : line(line), neighbours(line ? neighboursOf(line->rank(), line->size()) : std::vector<int>()),
      queues(neighbours.size()), options(std::move(given)), period(periodFor(options.timeoutSeconds)),
      liveness(static_cast<int>(options.groups.size()), options.timeoutSeconds, !line || line->rank() == 0),
      stragglers(options.groups), toldAgo(options.groups.size(), secondsBetweenNotes) {
  // A rank knows of its neighbours, and rank 0 of all.
  for (int rank = 0; line && line->rank() != 0 && rank < line->size(); ++rank)
    if (rank != line->rank() && std::ranges::count(neighbours, rank) == 0) liveness.left(rank);
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
    if (stopping && (mayLeave() || (line && line->rank() != 0 && leaving > leavingSeconds))) {
      if (line && !options.aborted->raised()) sendAll({.kind = HealthMessage::Leaving, .rank = line->rank()});
      return;
    }
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
  if (line) receiveAll(), flush();
  if (line) checkEnds();
  if (why.empty() && (!line || line->rank() == 0 || !liveness.hasLeft(parentOf(line->rank()))))
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
  tellIfStuck(awake);
  if (!line || line->rank() == 0) tellStragglers();
}

// A thread of this process that does not come back from what it does holds the process.
void Watch::tellIfStuck(double awake) {
  bool isBusy = std::ranges::any_of(own, [](const RankReport &report) { return report.state == RankReport::Busy; });
  endingFor = options.aborted->raised() && isBusy && !why.empty() ? endingFor + awake : 0;
  if (endingFor < stuckSeconds || !options.onStuck) return;
  endingFor = 0;
  options.onStuck(why);
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
  HealthMessage word{.kind = HealthMessage::Heartbeat,
                     .rank = line->rank(),
                     .state = mine.state,
                     .progress = mine.progress,
                     .window = mine.window,
                     .ownSeconds = mine.ownSeconds};
  if (stopping && line->rank() != 0 && haveChildrenLeft()) word.kind = HealthMessage::Leaving;
  copyText(word.host, mine.host);
  copyText(word.text, mine.where);
  sendAll(word);
}

void Watch::sendAll(const HealthMessage &word, int but) {
  for (int peer : neighbours)
    if (peer != but && !liveness.hasLeft(peer)) post(peer, word);
}

// A beat takes the place of an earlier one that has not gone yet.
void Watch::post(int peer, const HealthMessage &word) {
  std::deque<HealthMessage> &queue =
      queues[static_cast<size_t>(std::ranges::find(neighbours, peer) - neighbours.begin())];
  auto isEarlier = [&](const HealthMessage &other) {
    return other.kind == HealthMessage::Heartbeat && other.rank == word.rank;
  };
  if (auto found = std::ranges::find_if(queue, isEarlier); found != queue.end())
    *found = word;
  else
    queue.push_back(word);
  flush();
}

void Watch::flush() {
  for (size_t i = 0; i < neighbours.size(); ++i)
    while (!queues[i].empty() && line->send(neighbours[i], queues[i].front())) queues[i].pop_front();
}

void Watch::receiveAll() {
  int peer = 0;
  HealthMessage word;
  while (line->receive(peer, word)) take(peer, word);
}

void Watch::take(int peer, const HealthMessage &word) {
  if (word.kind == HealthMessage::RunEnded) return learn(word.text, peer);
  if (word.rank < 0 || word.rank >= line->size()) return;
  const int parent = parentOf(line->rank());
  if (peer != parent && parent >= 0) post(parent, word);
  if (word.kind == HealthMessage::Leaving) return takeLeave(peer, word.rank);
  if (liveness.hasLeft(word.rank)) return;
  liveness.heard(word.rank, {static_cast<RankReport::State>(word.state), word.progress, word.window, word.ownSeconds,
                             word.host, word.text});
  stragglers.heard(word.rank, word.window, word.ownSeconds);
}

// A child that leaves hears that it may. Those below a rank that has left are heard of no more.
void Watch::takeLeave(int peer, int rank) {
  if (peer == rank && peer != parentOf(line->rank()) && !liveness.hasLeft(peer))
    post(peer, {.kind = HealthMessage::Leaving, .rank = line->rank()});
  liveness.left(rank);
  for (int below : childrenOf(rank, line->size()))
    if (peer != parentOf(line->rank()) && !liveness.hasLeft(below)) takeLeave(peer, below);
}

bool Watch::haveChildrenLeft() const {
  return std::ranges::all_of(neighbours,
                             [&](int peer) { return peer == parentOf(line->rank()) || liveness.hasLeft(peer); });
}

// Connections that have ended without a word.
void Watch::checkEnds() {
  for (int peer : neighbours) {
    if (liveness.hasLeft(peer) || !line->hasEnded(peer)) continue;
    learn(fmt::format("rank {} is gone ({})", peer, liveness.lastOf(peer)), peer);
    liveness.left(peer);
  }
}

// The first cause stays, and goes on to those who cannot have told it.
void Watch::learn(const std::string &cause, int from) {
  if (!why.empty() || options.aborted->raised()) return;
  why = cause;
  known.notify_all();
  if (!line) return;
  HealthMessage word{.kind = HealthMessage::RunEnded, .rank = line->rank()};
  copyText(word.text, why);
  sendAll(word, from);
}

void Watch::announce(const std::string &message) {
  std::lock_guard guard(lock);
  if (!why.empty()) return;
  why = message;
  if (!line) return;
  HealthMessage word{.kind = HealthMessage::RunEnded, .rank = line->rank()};
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
  return line->rank() == 0 ? !liveness.isRunning() : haveChildrenLeft() && liveness.hasLeft(parentOf(line->rank()));
}

} // namespace cleave::runtime
