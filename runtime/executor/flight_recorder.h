// How far every lane of the ranks of this process has come in what they exchange, for the message about a step that
// does not end. Marks are words on the GPU, which the streams write between the exchanges, also where they are a graph.
//
//   FlightRecorder recorder;   Status s = recorder.open(devices);
//   FlightRecorder::Log log = recorder.begin();                // of a routine that is enqueued
//   recorder.mark(log, rank, lane, "in all_reduce 'gradients' of final 0");
//   recorder.text(log);   // "\n  rank 0: communication: in all_reduce 'gradients' of final 0 (1 of 2)"
#pragma once
#include "runtime/device/cuda/cuda_device.h"
#include <array>
#include <deque>
#include <string>
#include <vector>

namespace cleave::runtime {

class FlightRecorder {
public:
  using Log = std::vector<std::array<std::vector<std::string>, numLanes>>; // what marks count, by rank and lane
  Status open(const std::vector<cuda::CudaDevice *> &ranks);
  Log begin() const { return Log(devices.size()); }
  // Before a lane's first exchange.
  Status clear(size_t rank, int lane) { return write(rank, lane, 0); }
  Status mark(Log &log, size_t rank, int lane, const std::string &what);
  std::string text(const Log &log) const;

private:
  Status write(size_t rank, int lane, unsigned value);
  bool read(size_t rank) const;
  std::vector<cuda::CudaDevice *> devices;
  std::deque<cuda::DeviceMemory> marks; // of every rank: a word a lane
  cuda::PinnedMemory seen;              // the ranks' marks when they were last asked for
};

} // namespace cleave::runtime
