// Runs the programs of GPUs: one thread puts the commands of all ranks of this process on their streams, in an order in
// which everything that is waited for has been enqueued before. Another run may be enqueued behind one that goes on.
//
//   StreamEngine engine(programs, devices, fabric, {.limit = limits.step});
//   Status s = engine.open();
//   s = engine.begin("step", {.step = 7, .inputs = inputs});
//   s = engine.begin("step", {.step = 8, .inputs = others});
//   s = engine.finish(outputs);                              // of step 7
//
// Each lane of a rank has a cursor (lane_cursor.h), which stops where another lane or rank must come first. Inputs
// and scalars go through a stage on the GPU (plan/staged_inputs.h), to which a stream of its own copies them while the
// run before goes on. A routine is enqueued command by command the first time, then captured as a CUDA graph for each
// of the two stages and launched as that from then on: nothing in it changes. If the driver refuses that, routines go
// on command by command.
#pragma once
#include "runtime/engine/comm/cuda/stream_fabric.h"
#include "runtime/engine/device/cuda/event.h"
#include "runtime/engine/device/cuda/notice.h"
#include "runtime/engine/executor/prepared_program.h"
#include "runtime/engine/executor/stream_trace.h"
#include "runtime/engine/health/flight_recorder.h"
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

namespace cleave::runtime {

struct StreamOptions {
  bool debug = false; // every command is waited for before the next: an error is found at its command
  bool graphs = true;
  std::function<void(const std::string &)> warn = {}; // that there are no graphs; null: nobody
  TimeLimit limit = TimeLimits().step;                // of a routine that does not end
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
  // Reads the inputs and enqueues the routine; two may be begun and not finished. Its errors are told by its finish():
  // the run before it is finished first.
  void begin(const std::string &routine, const RankWork &work);
  // Waits for the end of the routine that was begun first, of those not finished; the outputs of the first rank. Error:
  // names the command; what is enqueued is given up.
  Status finish(std::vector<double> &outputs);
  int64_t failedRank() const { return failed; } // whose error it was
  // Seconds in which the first GPU had nothing to do after the routine that was finished last, until the next one,
  // which was begun before that; none: it was not.
  std::optional<double> idleSeconds() const { return idle; }

private:
  struct Upload {
    int64_t staged; // offset in the stage
    cuda::Address target;
    int64_t bytes;
  };
  // A routine of one rank.
  struct Rank {
    std::vector<std::vector<Upload>> uploads;              // by action
    std::vector<std::vector<int64_t>> inStage;             // their offsets there
    int64_t staged = 0;                                    // bytes
    std::map<std::pair<int, int>, cuda::StreamEvent> ends; // by lane and action that others wait for
  };
  struct Routine {
    std::vector<int> numbers; // of the programs' routines
    std::deque<Rank> ranks;
    std::array<cuda::GraphExec, 2> graphs{}; // by stage
    int64_t runs = 0;
    std::unordered_map<Traffic *, std::pair<int64_t, int64_t>> sent; // by a run: how often, bytes
    FlightRecorder::Log log;
  };
  struct Cursor : LaneCursor {
    using LaneCursor::LaneCursor;
    bool isMarked = false; // the command that is tried
  };
  // A run that is not finished.
  struct Run {
    Routine *routine;
    int64_t turn; // its number among all
    bool isTraced = false, isGraph = false;
    Status failure = {}; // why it could not begin
    int64_t failedRank = 0;
    std::optional<Status> ended = {}; // how; none: nobody has waited for it
  };
  // The events of a turn, for as many turns as are looked at.
  struct Turn {
    cuda::StreamEvent begin, end; // on the first stream
  };
  using Cursors = std::array<Cursor, numLanes>;

  Status openRoutine(const std::string &name, Routine &routine);
  Status loadLibraryKernels();
  Status beginRoutine(Run &run, const RankWork &work);
  Status finishRoutine(Run &run, std::vector<double> &outputs);
  void dropGraphs(); // also of one that runs: it goes when it has ended
  Status fill(Routine &routine, const RankWork &work);
  Status copyToStages(Routine &routine);
  Status awaitStages();
  Status enqueue(Routine &routine);
  Status capture(Routine &routine);
  Status captureOrGoOn(Routine &routine);
  Status fork(Routine &routine);
  Status join(const Routine &routine);
  Status advance(Routine &routine, size_t rank, int lane, bool &moved);
  Result<bool> enqueueCommand(Routine &routine, size_t r, int lane, const PreparedAction &action, const LaneItem &item);
  static std::string nameOf(const LaneItem &item, const PreparedAction &action);
  Status afterCommand(const Routine &routine, size_t rank, int lane, const plan::Command &command);
  Status await(const Routine &routine, const cuda::StreamEvent &event, const std::string &stopped);
  Status awaitEnd(Run &run);
  Status awaitEarlier();
  Status awaitNext(const Run &run, const Run &next);
  Status faults(const Run &run);
  Status fault(size_t rank, int64_t turn) const;
  Turn &turnOf(int64_t turn) { return turns[static_cast<size_t>(turn) % turns.size()]; }
  size_t stageOf(int64_t turn) const { return static_cast<size_t>(turn) % 2; }
  const PreparedRoutine &chainOf(const Routine &routine, size_t rank) const {
    return programs[rank]->routines[static_cast<size_t>(routine.numbers[rank])];
  }
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
  std::deque<cuda::StreamEvent> begins;                // of every rank
  std::deque<std::array<cuda::StreamEvent, 2>> copied; // likewise, to each of its stages
  std::array<Turn, 4> turns;
  std::deque<cuda::StreamEvent> commandEnds; // of every rank, with --debug
  cuda::Notice notice;
  FlightRecorder recorder;
  std::array<cuda::PinnedMemory, 2> results; // by stage: the word that a kernel of each rank left, then the outputs
  std::deque<Run> running;
  std::optional<double> idle;
  int64_t runNumber = 0, turn = -1, notices = 0, failed = 0;
};

} // namespace cleave::runtime
