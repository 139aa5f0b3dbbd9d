// A point on a stream that others wait for; destroyed when the object goes.
//
//   StreamEvent written;  written.make(gpu);  written.record(stream, run);
//   written.waitOn(other, run);       // nothing to wait for if it was recorded in an earlier run
#pragma once
#include "runtime/device/cuda/gpu.h"

namespace cleave::runtime::cuda {

class StreamEvent {
public:
  StreamEvent() = default;
  StreamEvent(const StreamEvent &) = delete;
  ~StreamEvent() {
    if (event && gpu->enter()) gpu->driver.eventDestroy(event);
  }
  Status make(const Gpu &owner) {
    gpu = &owner;
    CLEAVE_RETURN_IF_ERROR(gpu->enter());
    return gpu->check(gpu->driver.eventCreate(&event, eventDisableTiming), "cannot make an event");
  }
  Status record(Stream stream, int64_t run) {
    recorded = run;
    return gpu->check(gpu->driver.eventRecord(event, stream), "cannot record an event");
  }
  // Runs end with the host waiting for everything, and a graph cannot wait for what is outside of it.
  Status waitOn(Stream stream, int64_t run) const {
    if (recorded != run) return Status::ok();
    return gpu->check(gpu->driver.streamWaitEvent(stream, event, 0), "cannot wait for an event");
  }
  int64_t run() const { return recorded; }
  // True: happened. Error: the GPU failed.
  Result<bool> query() const {
    int error = gpu->driver.eventQuery(event);
    if (error == errorNotReady) return false;
    if (error) return gpu->check(error, "the GPU stopped");
    return true;
  }

private:
  const Gpu *gpu = nullptr;
  CuEvent event = nullptr;
  int64_t recorded = -1;
};

} // namespace cleave::runtime::cuda
