// The training loop that `cleave run` and the C interface run: parameters, data, steps, evaluation, metrics, snapshots.
//
//   TrainOptions options{.steps = 100, .metrics = "m.jsonl", .snapshots = "snapshots", .resume = true};
//   Status s = train(plan, options);                     // exit status as in docs/reference/commands.md
//
// Under mpirun, srun or torchrun-style variables this process is one rank; otherwise it runs all of them.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include "runtime/engine/comm/network.h"
#include "runtime/engine/executor/executor.h"
#include "runtime/train/evaluation.h"
#include "runtime/train/state/snapshot.h"
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace cleave::runtime {

struct StepMetrics {
  int64_t step = 0, steps = 0; // counted from 1; of the whole training, 0: not told
  double loss = 0, learningRate = 0, stepSeconds = 0, samplesPerSecond = 0, tokensPerSecond = 0, tflopsPerDevice = 0;
  double dataSeconds = 0; // of stepSeconds: the host read samples, or waited for them
  std::optional<double> gradNorm;
  std::optional<EvaluationResult> evaluation;
  std::map<std::string, std::optional<double>> named; // "grad_norm.attention", "loss.cls"; none: as of gradNorm
  std::optional<double> lossScale;                    // fp16: of the next step
  std::optional<int64_t> skipped; // steps so far whose gradients overflowed or were unusual: nothing was updated
  int64_t peakBytesPerDevice = 0, hostBytesPerDevice = 0; // on the fullest device; what it has in the host's memory
  std::string json() const;                               // one line, without the newline (docs/reference/metrics.md)
};

// Where a run began, and where it ended.
struct RunSpan {
  int64_t step = 0, steps = 0; // done; wanted, those before a resume included
  int64_t resumedStep = 0;     // of the snapshot that it went on from
  std::string resumedFrom;     // that snapshot; empty: it began at the model's weights
  int signal = 0;              // that stopped it; 0: none
  bool isEarly = false;        // its evaluations were not better for as long as the recipe waits
};

struct TrainOptions {
  std::optional<std::string> data = {}; // path that replaces the recipe's data.path
  int64_t steps = 0;                    // total steps of the training, those before a resume included; 0: one epoch
  std::string metrics = {};     // file of JSON lines, or .csv; "-": standard output; empty: none. A resume appends
  std::string tensorboard = {}; // folder of event files; empty: none
  std::string prometheus = {};  // file for the node exporter's textfile collector, .prom; empty: none
  std::string snapshots = {};   // folder; empty: none. One is always written after the last step
  bool ownSnapshots = false;    // the folder is this process' own: the caller brings the parts of all together
  int64_t snapshotEvery = 0;    // steps
  KeptSnapshots keep = {};      // others are removed. With `best` one is written after each best evaluation, too
  bool resume = false;          // from the newest snapshot in `snapshots`, if there is one
  bool acceptChanges = false;   // a resume with another model, loss or seed goes on all the same
  bool overwrite = false;       // another run's snapshots in `snapshots` are removed
  bool onlyEvaluates = false;   // `snapshots`, a snapshot or a folder, is read only; of `data` all samples count
  bool localBatches = false;    // the arrays of bind() are this process' part (local_batches.h)
  std::string trace = {};       // Chrome trace
  int64_t traceFrom = 1, traceTo = 0; // its steps; 0: from there on, as many as fit
  std::string counters = {};          // JSON file: what every device sent, counted as it was sent
  std::string model = {};             // ONNX file to read weights from instead of the plan's model_path
  int threads = 0;                    // a device; 0: as the plan says
  TimeLimits limits = {};             // after which a step on GPUs, or a rank that others wait for, is given up
  bool debug = false;          // GPUs: every command is waited for, so that an error names the command that did it
  bool graphs = true;          // GPUs: steps are captured and launched as one
  NetworkOptions network = {}; // how processes meet over TCP
  std::string runFolder = {};  // of this process, for the next attempt of the run (mirror.h): the processes' hosts
  int64_t mirrorEvery = 0;     // steps after which the state is mirrored there; 0: never
  bool checkWeights = false;   // all of each weight file is compared with what the plan was compiled for
  // On the first process, before the first step; its failure is the run's.
  std::function<Status()> openOutputs = {};
  std::function<void(const StepMetrics &)> onStep = {}; // on the first process, after every step
  std::function<void(const RunSpan &)> onEnd = {}; // on the first process: all is done and written, or a signal came
  std::function<void(const std::string &)> onNote = {}; // on the first process: where it begins, that nothing is left
  std::function<void(const std::string &)> onWarning = {}; // on any process and thread: what could not be written
  std::function<void()> onBegin = {}; // on every process: all have met and hold their state, the first step begins
  std::function<void(const std::string &why, bool isStuck)> onLost = {}; // see ExecutorOptions
  // The signal that asks this process to stop, or 0: the run ends after a step that all processes agree on, with a
  // snapshot and ErrorKind::Stopped. On all processes or on none.
  std::function<int()> stopAsked = {};
};

// A training that is stepped from outside.
class Trainer {
public:
  // `plan` must outlive the trainer.
  static Result<std::unique_ptr<Trainer>> create(const plan::Plan &plan, TrainOptions options);
  virtual ~Trainer() = default;
  virtual Result<StepMetrics> step() = 0; // one optimizer step
  virtual int64_t stepsDone() const = 0;
  virtual int64_t totalSteps() const = 0; // as resolved
  virtual Status snapshot() = 0;          // now
  // All processes call it: ok where it is on all of them, else the failure of one.
  virtual Status agree(const Status &mine) = 0;
  // Whether processes go on with one batch more: error, on all, where some do and others do not.
  virtual Status agreeOnMore(bool mine) = 0;
  virtual Executor &executor() = 0;
  // Binds a caller's array (the batch of one step, dense) to an input in place of the plan's data.
  virtual Status bind(const std::string &input, const void *data, int64_t bytes) = 0;
  // The same for the next evaluate().
  virtual Status bindEvaluation(const std::string &input, const void *data, int64_t bytes) = 0;
  // Adds the batch that is bound for it, or else `batches` of the samples that are held out, 0: all that fill a run.
  virtual Status evaluate(int64_t batches, EvaluationSums &sums) = 0;
  virtual const EvaluationRules &evaluationRules() const = 0;
  // With localBatches the samples of the global batch that the arrays have, in their order, of a step of this shape
  // (step_shapes.h); else none.
  virtual std::vector<int64_t> localSamples(size_t shape) const = 0;
};

Status train(const plan::Plan &plan, const TrainOptions &options);
// Evaluates the weights of options.snapshots, or without one the model's, on samples that are held out, or on all of
// options.data. `batches`: as of Trainer::evaluate.
Result<EvaluationResult> evaluate(const plan::Plan &plan, TrainOptions options, int64_t batches);

} // namespace cleave::runtime
