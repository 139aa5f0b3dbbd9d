// Messages between ranks of one process: a ring of buffers on the sender's GPU, into which a send copies and out of
// which a receive does, each after the event that the other left.
//
//   MessageBuffers route;   Status s = route.open(sender, receiver, message);
//   Prepared send = bufferedTransfer(fabric, route, sender, lane, transfer);
//   Result<bool> enqueued = send->issue();       // false: all buffers are full, or a receive comes before its send
#pragma once
#include "runtime/engine/comm/cuda/stream_fabric.h"
#include "runtime/engine/device/cuda/event.h"
#include <deque>

namespace cleave::runtime::cuda {

struct MessageBuffers {
  DeviceMemory memory;
  int64_t stride = 0;
  std::deque<StreamEvent> written, read; // by buffer
  int64_t sent = 0, taken = 0;
  int64_t sentBefore = 0, takenBefore = 0; // this run

  void beginRun() { sentBefore = sent, takenBefore = taken; }
  void giveUpRun() { sent = sentBefore, taken = takenBefore; }
  Status open(const CudaDevice &sender, const CudaDevice &receiver, const MessageRoute &message);
  StreamEvent &of(std::deque<StreamEvent> &events, int64_t message) {
    return events[static_cast<size_t>(message) % events.size()];
  }
};

// A transfer of the sender or of the receiver. `fabric` and `route` outlive it.
Prepared bufferedTransfer(const StreamFabric &fabric, MessageBuffers &route, CudaDevice &device, int lane,
                          const plan::Transfer &transfer);

} // namespace cleave::runtime::cuda
