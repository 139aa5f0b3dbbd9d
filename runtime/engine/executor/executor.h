// Executes a plan on the devices of this process.
//
//   Result<std::unique_ptr<Executor>> executor = Executor::create(plan, std::make_unique<LocalFabric>(mesh), {});
//   for (int64_t device : (*executor)->devices())                     // fill persistent tensors
//     for (const plan::Parameter &p : plan.parameters())
//       if ((*executor)->holds(device, p)) fill((*executor)->shard(device, p));
//   Result<std::map<std::string, double>> outputs = (*executor)->run("step", inputs, step);
//   outputs->at("loss");
#pragma once
#include "runtime/engine/executor/rank.h"
#include "runtime/engine/executor/shard_bytes.h"
#include "runtime/plan/coordinate.h"
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>

namespace cleave::runtime {

class StreamEngine;
class Watch;

struct ExecutorOptions {
  bool null = false;       // devices that execute nothing: static verification
  int threads = 0;         // a device; 0: the plan's, or cores / devices of this host
  TraceOptions trace = {}; // what is kept for writeTrace
  bool debug = false;      // GPUs: waits for every command, so that an error is found where it happens
  bool graphs = true;      // GPUs: routines are captured and launched as one
  // GPUs: a routine that takes longer is stuck. CPUs: so long a rank may keep others waiting without coming further.
  TimeLimits limits = {};
  std::function<void(const std::string &)> tell = {}; // of ranks that are slower than others; null: nobody
  // Another rank ends a routine of this process, and why: at once, and, if `isStuck`, ten seconds later because a
  // thread has not come back. On another thread; null: nobody.
  std::function<void(const std::string &why, bool isStuck)> onLost = {};
};

class Executor {
public:
  // Verifies the plan (verify.h), allocates arenas, prepares every command, loads constants and starts the threads.
  // `plan` must outlive the executor. Persistent tensors are zero.
  static Result<std::unique_ptr<Executor>> create(const plan::Plan &plan, std::unique_ptr<Fabric> fabric,
                                                  ExecutorOptions options);
  ~Executor();

  const plan::Plan &plan() const { return source; }
  const dist::Mesh &mesh() const { return meshOfPlan; }
  Fabric &fabric() { return *connection; }
  std::vector<int64_t> devices() const; // that this process runs

  // Whether one of devices() holds the persistent tensor at all: those of other pipeline stages do not.
  bool holds(int64_t device, const plan::Parameter &parameter) const;
  // The bytes of a persistent tensor on one of devices() that holds it: its local shard, dense. Only between runs.
  ShardBytes shard(int64_t device, const plan::Parameter &parameter, ShardAccess access = ShardAccess::Change);
  Shard shardShape(int64_t device, const plan::Parameter &parameter) const;
  // The whole tensor, dense, put together from what devices() hold.
  void gather(const plan::Parameter &parameter, std::byte *out);

  // Whether the plan has a routine ("step", "evaluate") of this name.
  bool has(const std::string &routine) const;
  // Runs a routine on all devices: begin() and finish(). `inputs`: for every microbatch of it, the global arrays,
  // dense, of inputsOf(plan, routine), in that order (those of the first microbatch, then those of the second, ...);
  // null where no device of this process reads the input. `next`: the same for the next step, of which a "step" that
  // runs into it computes a part (routine.h); else none. `skipped`: how many of the steps before were skipped (fp16).
  // Gives the outputs of the first of devices() as numbers. Error: which rank, step and command failed; the executor is
  // then of no further use.
  Result<std::map<std::string, double>> run(const std::string &routine, std::span<const std::byte *const> inputs,
                                            int64_t step, int64_t skipped = 0,
                                            std::span<const std::byte *const> next = {});
  // At most two routines are begun and not finished. A rank begins the second when it has ended the first, whatever the
  // others do. The inputs are read until the routine is finished, and the arrays of pointers, too; on GPUs until
  // begin() returns. Devices' errors are told by the finish() of the routine that they are of.
  Status begin(const std::string &routine, std::span<const std::byte *const> inputs, int64_t step, int64_t skipped = 0,
               std::span<const std::byte *const> next = {});
  Result<std::map<std::string, double>> finish(); // the one that was begun first
  // Outputs of several elements, by name, of the routine that was finished last.
  const std::map<std::string, std::vector<double>> &outputTensors() const { return tensors; }
  // Whether begin() of one routine beside another makes its inputs' way shorter: on GPUs.
  bool prefetchesInputs() const { return streams != nullptr; }
  // Seconds in which the devices had nothing to do between the routine that was finished last and the next, if that was
  // begun and they tell: on GPUs.
  std::optional<double> idleSeconds() const;
  // Whether a device of this process reads the input in the routine.
  bool reads(const std::string &routine, const std::string &input) const;

  int64_t peakBytes() const;                            // allocated on the fullest of devices()
  int64_t hostBytes() const;                            // of the host's memory, most for one of devices()
  const Status &lastFailure() const { return failure; } // of a run, or of a shard's bytes on their way
  // Ends the run everywhere and tells the other processes why.
  void giveUp(const Status &why);
  int threadsPerDevice() const { return threads; }
  std::vector<Traffic> traffic(int64_t device) const; // sent so far by one of devices(); only between runs
  Status writeTrace(const std::string &path) const;
  const Trace *recorded() const { return trace.get(); } // null without a trace; only between runs

private:
  explicit Executor(const plan::Plan &plan);
  Status open(ExecutorOptions options);
  Status openDevices(const ExecutorOptions &options);
  void startWatch(const ExecutorOptions &options);
  std::vector<RankReport> reports() const;
  void endBecause(const std::string &cause);
  std::string causeOfLoss();
  void noteFailure(int64_t rank, int64_t step, const Status &status);
  const PreparedProgram *program(int64_t device) const;

  const plan::Plan &source;
  dist::Mesh meshOfPlan;
  std::map<std::string, std::vector<double>> tensors;
  std::unique_ptr<Trace> trace;
  std::vector<std::unique_ptr<Device>> opened;            // of devices(), in that order
  std::unique_ptr<Fabric> connection;                     // between them: on GPUs it holds events and memory of theirs
  std::vector<std::unique_ptr<PreparedProgram>> programs; // likewise
  std::vector<std::unique_ptr<Rank>> ranks;               // what runs them on the CPU
  std::atomic<bool> areRanksReady{false};                 // all are made
  std::unique_ptr<Watch> watch;                           // over them, and those of other processes
  std::unique_ptr<StreamEngine> streams;                  // what runs them on GPUs
  std::map<std::string, size_t> inputCounts;              // of a routine, over all its microbatches
  int threads = 1;
  std::atomic<int64_t> currentStep{0};
  struct Begun {
    int routine; // of the first of devices()
    int64_t step;
  };
  std::deque<Begun> begun;
  std::mutex failureLock;
  Status failure; // the first, with its rank and step
};

} // namespace cleave::runtime
