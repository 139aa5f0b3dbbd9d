// Streams, events and graphs of the fake driver.
#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace fake {

struct Stream;
struct Event;
struct Operation { // of a capture
  Stream *stream = nullptr;
  std::function<void()> work; // or
  Event *recorded = nullptr, *waited = nullptr;
};

// The GPU whose context is the calling thread's; -1: none. Work that is enqueued, and an event that is recorded,
// must belong to it.
extern thread_local int currentDevice;
int deviceOf(const Stream *stream);
Stream *makeStream(); // of the current GPU, as events are
int destroyStream(Stream *stream);
// Captured, when the stream is being captured.
int enqueue(Stream *stream, std::function<void()> work);
bool isCapturing(Stream *stream);
int synchronize(Stream *stream);
int query(Stream *stream);
Event *makeEvent();
int destroyEvent(Event *event);
int recordEvent(Event *event, Stream *stream);
int waitEvent(Stream *stream, Event *event);
int queryEvent(Event *event);
int elapsedTime(float *milliseconds, Event *begin, Event *end);
int beginCapture(Stream *stream);
int endCapture(Stream *stream, std::vector<Operation> &operations);
int launchGraph(const std::vector<Operation> &operations, Stream *stream);

void setError(int error); // sticky, as a kernel's is
void clearError();
bool hasError();
void setHanging(const std::string &kernel);
void setDepth(size_t most); // operations that a stream takes before its callers wait
void waitWhileHanging(const std::string &kernel);

} // namespace fake
