// When the commands of GPUs began and ended, for `--trace`: an event that keeps the time before and after each on its
// stream. The host's clock tells when a run begins; all else is the GPU's.
//
//   StreamTrace timing(trace, gpus);               // one GPU a rank
//   timing.beginRun(step, streams);                // every rank's first stream
//   timing.begin(rank, stream);  command.issue();  timing.end({...}, stream);
//   timing.endRun();                               // everything has happened: records go to the trace
#pragma once
#include "runtime/engine/device/cuda/gpu.h"
#include "runtime/engine/executor/trace.h"
#include <map>
#include <span>

namespace cleave::runtime {

class StreamTrace {
public:
  StreamTrace(Trace &trace, std::vector<const cuda::Gpu *> gpus) : trace(trace), gpus(std::move(gpus)) {}
  ~StreamTrace();
  StreamTrace(const StreamTrace &) = delete;

  struct Place {
    size_t rank; // of this process
    int64_t id;
    int lane;
  };
  // Is the step, which counts from 0, timed? And are no later ones: it is full, or the last of its steps is over.
  bool takes(int64_t step) const { return !full && !trace.isBefore(step) && !trace.isAfter(step); }
  bool isDone(int64_t step) const { return full || trace.isAfter(step); }
  Status beginRun(int64_t step, std::span<const cuda::Stream> streams);
  Status begin(const Place &place, cuda::Stream stream);
  Status end(const Place &place, const plan::Command &command, const plan::Action &action,
             const plan::Fragment &fragment, cuda::Stream stream);
  Status endRun();

private:
  struct Timed {
    Place place;
    const plan::Command *command;
    const plan::Action *action;
    const plan::Fragment *fragment;
    cuda::CuEvent begin, end;
  };
  TraceLane &laneOf(const Place &place);
  Result<cuda::CuEvent> record(size_t rank, cuda::Stream stream);

  Trace &trace;
  std::map<std::pair<size_t, int>, TraceLane *> lanes; // by rank and lane
  std::vector<const cuda::Gpu *> gpus;                 // by rank
  std::vector<std::vector<cuda::CuEvent>> events;
  std::vector<size_t> used;           // of them, in this run
  std::vector<cuda::CuEvent> origins; // of this run
  std::vector<Timed> timed;
  std::map<std::pair<size_t, int>, cuda::CuEvent> begun; // by rank and lane
  int64_t step = 0, started = 0;
  bool full = false;
};

} // namespace cleave::runtime
