// How far every lane of the ranks of this process has come, for the message about a step that does not end. Marks are
// words on the GPU, which the streams write between the commands, also where they are a graph: before every exchange,
// after every command of a lane that does not compute, and of what computes where it waits for another lane, after
// every 16th command, as a mark takes a microsecond, and at its end.
//
//   FlightRecorder recorder;   Status s = recorder.open(devices, plan.mesh());
//   FlightRecorder::Log log = recorder.begin();                // of a routine that is enqueued
//   recorder.begins(log, rank, lane, [] { return "all_reduce 'gradients' of final 0"; }, /*isExchange=*/true);
//   recorder.ended(log, rank, lane, ...);
//   recorder.text(log);   // "\n  rank 0: communication: in all_reduce 'gradients' of final 0 (0 of 2 commands done)"
#pragma once
#include "runtime/engine/device/cuda/cuda_device.h"
#include <array>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace cleave::runtime {

class FlightRecorder {
public:
  struct Lane {
    struct Mark {
      std::string what;
      int64_t commands; // that are done there
    };
    std::vector<Mark> marks; // what the lane's word counts
    int64_t commands = 0;    // all
  };
  using Log = std::vector<std::array<Lane, numLanes>>; // by rank
  Status open(const std::vector<cuda::CudaDevice *> &ranks, const plan::Mesh &planMesh);
  Log begin() const { return Log(devices.size()); }
  // Before a rank's first command, on its lane that computes.
  Status clear(size_t rank);
  // Around every command, and before one that waits for another lane; `name` makes what it is called, where there is a
  // mark.
  using Name = std::function<std::string()>;
  Status waits(Log &log, size_t rank, int lane, const Name &name);
  Status begins(Log &log, size_t rank, int lane, const Name &name, bool isExchange);
  Status ended(Log &log, size_t rank, int lane, const Name &name, bool isExchange);
  // After a lane's last command.
  Status finished(Log &log, size_t rank, int lane);
  std::string text(const Log &log) const;

private:
  Status mark(Log &log, size_t rank, int lane, const std::string &what);
  Status write(size_t rank, int lane, unsigned value);
  bool read(size_t rank) const;
  std::vector<cuda::CudaDevice *> devices;
  const plan::Mesh *mesh = nullptr;
  std::deque<cuda::DeviceMemory> marks; // of every rank: a word a lane
  cuda::PinnedMemory seen;              // the ranks' marks when they were last asked for
};

} // namespace cleave::runtime
