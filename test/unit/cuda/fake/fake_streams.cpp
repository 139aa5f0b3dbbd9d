#include "test/unit/cuda/fake/fake_streams.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>

namespace fake {

thread_local int currentDevice = -1;

namespace {

std::mutex lock; // over everything here
std::condition_variable changed;
std::set<Stream *> streams;
std::set<Event *> events;
std::atomic<int> failure{0};
std::string hanging;
size_t depth = SIZE_MAX;

// A point that comes to pass.
struct Happening {
  bool done = false;
  std::chrono::steady_clock::time_point at;
};
using Point = std::shared_ptr<Happening>;

using Clock = std::map<Stream *, size_t>; // of a capture: by stream, how many of its operations are behind

// The capture that is going on: one at a time.
struct Capture {
  Stream *origin = nullptr;
  std::vector<Operation> operations;
  std::map<Stream *, Clock> clocks; // of the streams that take part
  std::map<Event *, Clock> recorded;
};
std::unique_ptr<Capture> capture;

} // namespace

struct Event {
  Point point;           // of the last record; null: none
  bool captured = false; // the last record was in a capture
  int device = currentDevice;
};

struct Stream {
  std::deque<std::function<void()>> queue;
  size_t done = 0, queued = 0;
  int device = currentDevice;
  bool ending = false;
  std::thread thread;

  Stream() : thread([this] { run(); }) {}
  void run() {
    std::mt19937 engine(static_cast<unsigned>(reinterpret_cast<uintptr_t>(this) >> 4));
    std::unique_lock guard(lock);
    while (true) {
      changed.wait(guard, [&] { return ending || !queue.empty(); });
      if (queue.empty()) return;
      std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      guard.unlock();
      if (engine() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(engine() % 200));
      work();
      guard.lock();
      ++done;
      changed.notify_all();
    }
  }
  void push(std::function<void()> work) { // with the lock
    queue.push_back(std::move(work));
    ++queued;
    changed.notify_all();
  }
  void pushWait(Point point) {
    push([point] {
      std::unique_lock guard(lock);
      changed.wait(guard, [&] { return point->done; });
    });
  }
  Point pushPoint() {
    auto point = std::make_shared<Happening>();
    push([point] {
      std::lock_guard guard(lock);
      *point = {true, std::chrono::steady_clock::now()};
      changed.notify_all();
    });
    return point;
  }
};

namespace {
enum : int { invalidHandle = 400, captureForbids = 900, captureUnjoined = 904, captureIsolation = 905, notReady = 600 };

// The driver holds the caller up as long as the stream has no room.
void awaitRoom(std::unique_lock<std::mutex> &guard, Stream *stream) {
  changed.wait(guard, [&] { return stream->queue.size() < depth; });
}
bool capturing(Stream *stream) { return capture && capture->clocks.contains(stream); }
void note(Operation operation) {
  ++capture->clocks[operation.stream][operation.stream];
  capture->operations.push_back(std::move(operation));
}
void merge(Clock &into, const Clock &from) {
  for (auto [stream, count] : from) into[stream] = std::max(into[stream], count);
}
} // namespace

int deviceOf(const Stream *stream) { return stream->device; }

Stream *makeStream() {
  auto *made = new Stream;
  std::lock_guard guard(lock);
  streams.insert(made);
  return made;
}

int destroyStream(Stream *stream) {
  {
    std::lock_guard guard(lock);
    if (!streams.erase(stream)) return invalidHandle;
    stream->ending = true;
    changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  return 0;
}

int enqueue(Stream *stream, std::function<void()> work) {
  std::unique_lock guard(lock);
  if (!streams.contains(stream) || stream->device != currentDevice) return invalidHandle;
  if (failure) return failure;
  if (capturing(stream))
    note({stream, std::move(work)});
  else {
    awaitRoom(guard, stream);
    stream->push(std::move(work));
  }
  return 0;
}

bool isCapturing(Stream *stream) {
  std::lock_guard guard(lock);
  return capturing(stream);
}

int synchronize(Stream *stream) {
  std::unique_lock guard(lock);
  if (!streams.contains(stream)) return invalidHandle;
  if (capturing(stream)) return captureForbids;
  size_t target = stream->queued;
  changed.wait(guard, [&] { return stream->done >= target; });
  return failure;
}

int query(Stream *stream) {
  std::lock_guard guard(lock);
  if (!streams.contains(stream)) return invalidHandle;
  if (capturing(stream)) return captureForbids;
  return stream->done < stream->queued ? notReady : failure.load();
}

Event *makeEvent() {
  auto *made = new Event;
  std::lock_guard guard(lock);
  events.insert(made);
  return made;
}
int destroyEvent(Event *event) {
  std::lock_guard guard(lock);
  if (!events.erase(event)) return invalidHandle;
  delete event;
  return 0;
}

int recordEvent(Event *event, Stream *stream) {
  std::unique_lock guard(lock);
  if (!streams.contains(stream) || !events.contains(event)) return invalidHandle;
  if (stream->device != currentDevice || event->device != currentDevice) return invalidHandle;
  if (failure) return failure;
  event->captured = capturing(stream);
  if (event->captured) {
    note({stream, nullptr, event, nullptr});
    capture->recorded[event] = capture->clocks[stream];
  } else {
    awaitRoom(guard, stream);
    event->point = stream->pushPoint();
  }
  return 0;
}

int waitEvent(Stream *stream, Event *event) {
  std::unique_lock guard(lock);
  if (!streams.contains(stream) || !events.contains(event)) return invalidHandle;
  if (failure) return failure;
  if (event->captured && capture && capture->recorded.contains(event)) {
    merge(capture->clocks[stream], capture->recorded[event]); // the stream takes part from now on
    note({stream, nullptr, nullptr, event});
    return 0;
  }
  if (capturing(stream)) return captureIsolation;
  if (event->captured) return 1; // of a capture that is over
  if (!event->point) return 0;
  awaitRoom(guard, stream);
  stream->pushWait(event->point);
  return 0;
}

int queryEvent(Event *event) {
  std::lock_guard guard(lock);
  if (!events.contains(event)) return invalidHandle;
  if (failure) return failure;
  return !event->point || event->point->done ? 0 : notReady;
}

int elapsedTime(float *milliseconds, Event *begin, Event *end) {
  std::lock_guard guard(lock);
  if (!events.contains(begin) || !events.contains(end) || !begin->point || !end->point) return invalidHandle;
  if (!begin->point->done || !end->point->done) return notReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->point->at - begin->point->at).count();
  return 0;
}

int beginCapture(Stream *stream) {
  std::lock_guard guard(lock);
  if (!streams.contains(stream) || capture) return invalidHandle;
  capture = std::make_unique<Capture>();
  capture->origin = stream;
  capture->clocks[stream];
  return 0;
}

int endCapture(Stream *stream, std::vector<Operation> &operations) {
  std::lock_guard guard(lock);
  if (!capture || capture->origin != stream) return invalidHandle;
  std::unique_ptr<Capture> ended = std::move(capture);
  const Clock &reached = ended->clocks[stream];
  for (const auto &[other, clock] : ended->clocks)
    if (auto own = clock.find(other); own != clock.end())
      if (auto seen = reached.find(other); seen == reached.end() || seen->second < own->second) return captureUnjoined;
  operations = std::move(ended->operations);
  return 0;
}

int launchGraph(const std::vector<Operation> &operations, Stream *stream) {
  std::lock_guard guard(lock);
  if (failure) return failure;
  // The streams' order and waits as captured; all begin after `stream`, which the capture's end has joined.
  Point begin = stream->pushPoint();
  std::map<Event *, Point> points;
  std::set<Stream *> begun{stream};
  for (const Operation &operation : operations) {
    if (begun.insert(operation.stream).second) operation.stream->pushWait(begin);
    if (operation.recorded)
      points[operation.recorded] = operation.stream->pushPoint();
    else if (operation.waited)
      operation.stream->pushWait(points.at(operation.waited));
    else
      operation.stream->push(operation.work);
  }
  return 0;
}

void setError(int error) { failure = error; }
void clearError() { failure = 0; }
bool hasError() { return failure != 0; }
void setHanging(const std::string &kernel) {
  std::lock_guard guard(lock);
  hanging = kernel;
  changed.notify_all();
}
void setDepth(size_t most) {
  std::lock_guard guard(lock);
  depth = most;
  changed.notify_all();
}
void waitWhileHanging(const std::string &kernel) {
  std::unique_lock guard(lock);
  changed.wait(guard, [&] { return hanging != kernel; });
}

} // namespace fake
