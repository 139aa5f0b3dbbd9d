// Runs the programs of GPUs: one thread puts the commands of all ranks of this process on their streams, in an order in
// which everything that is waited for has been enqueued before, then waits for the end.
//
//   StreamEngine engine(programs, devices, fabric, {.timeoutSeconds = 600});
//   Status s = engine.open();
//   s = engine.run("step", {.step = 7, .inputs = inputs});
//
// Each lane of a rank is a cursor into its program; a cursor stops where another lane or rank must come first. A
// routine is enqueued command by command the first time, captured as a CUDA graph the second time and launched as that
// from then on: nothing in it changes, what the host gives lies in pinned memory that the graph copies from. If the
// driver refuses that, routines go on command by command.
#pragma once
#include "runtime/comm/cuda/stream_fabric.h"
#include "runtime/device/cuda/event.h"
#include "runtime/executor/flight_recorder.h"
#include "runtime/executor/prepared_program.h"
#include "runtime/executor/stream_trace.h"
#include <functional>
#include <memory>
#include <unordered_map>

namespace cleave::runtime {

struct StreamOptions {
  bool debug = false; // every command is waited for before the next: an error is found at its command
  bool graphs = true;
  std::function<void(const std::string &)> warn = {}; // that there are no graphs; null: nobody
  double timeoutSeconds = 600;                        // of a routine that does not end
  Trace *trace = nullptr;                             // of the first steps, which are then no graphs
};

class StreamEngine {
public:
  // The programs are prepared, of the devices in their order.
  StreamEngine(std::vector<PreparedProgram *> programs, std::vector<cuda::CudaDevice *> devices,
               cuda::StreamFabric &fabric, StreamOptions options);
  ~StreamEngine();
  // Streams' events and pinned memory for every routine.
  Status open();
  // Error: names the command; what is enqueued is given up.
  Status run(const std::string &routine, const RankWork &work);
  int64_t failedRank() const { return failed; } // whose error run() gave

private:
  struct Upload {
    int64_t staged; // offset in the pinned memory
    cuda::Address target;
    int64_t bytes;
  };
  // A routine of one rank.
  struct Rank {
    std::vector<std::vector<Upload>> uploads; // by action
    cuda::PinnedMemory staging;
    std::map<std::pair<int, int>, cuda::StreamEvent> ends; // by lane and action that others wait for
  };
  struct Routine {
    std::vector<int> numbers; // of the programs' routines
    std::deque<Rank> ranks;
    cuda::GraphExec graph = nullptr;
    int64_t runs = 0;
    std::unordered_map<Traffic *, std::pair<int64_t, int64_t>> sent; // by a run: how often, bytes
    FlightRecorder::Log log;
  };
  struct Cursor {
    size_t action = 0, item = 0;
    bool begun = false, finished = false; // the action's inputs are enqueued; no action is left
    bool marked = false;
    std::vector<ActionWait>::const_iterator wait;
  };
  using Cursors = std::array<Cursor, numLanes>;

  Status openRoutine(const std::string &name, Routine &routine);
  Status loadLibraryKernels();
  Status runRoutine(Routine &routine, const RankWork &work);
  void dropGraphs(); // also of one that runs: it goes when it has ended
  Status fill(Routine &routine, const RankWork &work);
  Status enqueue(Routine &routine);
  Status capture(Routine &routine);
  Status captureOrGoOn(Routine &routine);
  Status fork(Routine &routine);
  Status join();
  Status advance(Routine &routine, size_t rank, int lane, bool &moved);
  Result<bool> waited(Routine &routine, size_t rank, int lane, const ActionWait &wait);
  Status afterCommand(const Routine &routine, size_t rank, int lane, const plan::Command &command);
  Status await(const Routine &routine, const std::function<Result<bool>()> &isThere);
  Status awaitEnd(const Routine &routine);
  Status fault(size_t rank) const;
  cuda::StreamEvent &eventOf(const Event *event) { return *events.at(event); }

  std::vector<PreparedProgram *> programs;
  std::vector<cuda::CudaDevice *> devices;
  cuda::StreamFabric &fabric;
  StreamOptions options;
  std::unique_ptr<StreamTrace> timing; // null: not traced
  std::map<std::string, Routine> routines;
  std::unordered_map<const Event *, std::unique_ptr<cuda::StreamEvent>> events;
  std::vector<std::vector<int>> lanes;                  // by rank: those it has
  std::vector<Cursors> cursors;                         // by rank
  std::unordered_map<const Event *, size_t> recordedIn; // the last action that recorded it
  std::deque<std::array<cuda::StreamEvent, numLanes>> laneEnds;
  std::deque<cuda::StreamEvent> begins; // of every rank
  cuda::StreamEvent end;
  FlightRecorder recorder;
  cuda::PinnedMemory faults; // of every rank: the word that a kernel left, for the host
  int64_t runNumber = 0, failed = 0;
};

} // namespace cleave::runtime
