// A point on a stream that others wait for; destroyed when the object goes.
//
//   StreamEvent written;  written.make(gpu);  written.record(stream, run);
//   written.waitOn(other, run);       // nothing to wait for if it was recorded in an earlier run
#pragma once
#include "runtime/engine/device/cuda/gpu.h"

namespace cleave::runtime::cuda {

class StreamEvent {
public:
  StreamEvent() = default;
  StreamEvent(const StreamEvent &) = delete;
  ~StreamEvent() {
    if (event && gpu->enter()) gpu->driver.eventDestroy(event);
  }
  enum class Keeps : uint8_t { Order, Time };
  Status make(const Gpu &owner, Keeps keeps = Keeps::Order) {
    gpu = &owner;
    CLEAVE_RETURN_IF_ERROR(gpu->enter());
    return gpu->check(gpu->driver.eventCreate(&event, keeps == Keeps::Order ? eventDisableTiming : 0),
                      "cannot make an event");
  }
  // Error: also that of work before it on the GPU; the message begins with `refused`.
  Status record(Stream stream, int64_t run, const char *refused = "cannot record an event") {
    recorded = run;
    return gpu->check(gpu->driver.eventRecord(event, stream), refused);
  }
  // A run begins on the GPU after the one before, and a graph cannot wait for what is outside of it.
  Status waitOn(Stream stream, int64_t run) const {
    if (recorded != run) return Status::ok();
    return gpu->check(gpu->driver.streamWaitEvent(stream, event, 0), "cannot wait for an event");
  }
  int64_t run() const { return recorded; }
  // True: happened. Error: the GPU failed; the message begins with `stopped`.
  Result<bool> query(const char *stopped) const {
    int error = gpu->driver.eventQuery(event);
    if (error == errorNotReady) return false;
    if (error) return gpu->check(error, stopped);
    return true;
  }

  // Seconds on the GPU from another event to this one; both keep the time and have happened.
  Result<double> secondsSince(const StreamEvent &other) const {
    float milliseconds = 0;
    CLEAVE_RETURN_IF_ERROR(gpu->check(gpu->driver.eventElapsedTime(&milliseconds, other.event, event),
                                      "cannot ask for the time between events"));
    return static_cast<double>(milliseconds) / 1e3;
  }

private:
  const Gpu *gpu = nullptr;
  CuEvent event = nullptr;
  int64_t recorded = -1;
};

} // namespace cleave::runtime::cuda
