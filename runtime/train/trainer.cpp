#include "runtime/train/trainer.h"
#include "runtime/base/atomic_file.h"
#include "runtime/engine/comm/open_fabric.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/loss_scale_names.h"
#include "runtime/plan/lr_schedule.h"
#include "runtime/plan/master_weights.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/step_shapes.h"
#include "runtime/train/event_file.h"
#include "runtime/train/local_batches.h"
#include "runtime/train/metrics_file.h"
#include "runtime/train/mirror.h"
#include "runtime/train/prometheus_file.h"
#include "runtime/train/resume_vote.h"
#include "runtime/train/run_record.h"
#include "runtime/train/state/snapshot.h"
#include "runtime/train/state/weights.h"
#include "runtime/train/state_saver.h"
#include "runtime/train/step_data.h"
#include "runtime/train/stop_vote.h"
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace cleave::runtime {
namespace {

class PlanTrainer final : public Trainer {
public:
  PlanTrainer(const plan::Plan &plan, TrainOptions options)
      : source(plan), training(plan.training()), options(std::move(options)) {}

  Status open();
  Result<StepMetrics> step() override;
  int64_t stepsDone() const override { return done; }
  int64_t totalSteps() const override { return total; }
  Status snapshot() override;
  Status agree(const Status &mine) override { return ofAll(mine); }
  Status agreeOnMore(bool mine) override { return runtime::agreeOnMore(control(), mine, options.limits.step); }
  Executor &executor() override { return *engine; }
  Status bind(const std::string &input, const void *array, int64_t bytes) override {
    return data->bind(input, array, bytes);
  }
  Status bindEvaluation(const std::string &input, const void *array, int64_t bytes) override {
    isEvaluationBound = true;
    return data->bindEvaluation(input, array, bytes);
  }
  Status evaluate(int64_t batches, EvaluationSums &sums) override {
    return std::exchange(isEvaluationBound, false) ? data->evaluateBound(*engine, done, sums)
                                                   : data->evaluate(*engine, done, batches, sums);
  }
  const EvaluationRules &evaluationRules() const override { return data->evaluationRules(); }
  int64_t heldOutSamples() const { return data->heldOutSamples(); }
  // Nobody leaves while another may still ask it something.
  Status leave() { return engine->fabric().control().barrier(options.limits.step); }
  std::vector<int64_t> localSamples(size_t shape) const override { return data->localSamples(shape); }
  int64_t stepsRun() const { return done - resumedAt; }
  // Tells the other processes why this one ends.
  void giveUp(const Status &why) {
    if (engine) engine->giveUp(why);
  }
  // All steps from here on, until a process is asked to stop.
  Status runToEnd();
  bool isFirstProcess() const { return engine->devices().front() == 0; }

private:
  // Whether a step's last backwards and the next one's first forwards run at the same time: nothing else comes between.
  bool runsIntoNext(int64_t step) const { return stepsOverlap(source) && isFollowed(step); }
  bool isFollowed(int64_t step) const {
    return ownsLoop && step + 1 < total && !isSnapshotDue(step + 1) && !isMirrorDue(step + 1) &&
           !data->isEvaluationDue(step + 1);
  }
  // Whether the next step is begun while this one goes on: its inputs are read and copied beside it, and this one's
  // results are read when the next has begun. The host must know how many steps were skipped before it gives the next
  // one its scalars.
  bool beginsNext(int64_t step) const {
    return (stepsOverlap(source) || engine->prefetchesInputs()) && isFollowed(step) && !countsSkipped;
  }
  Status beginStep(int64_t step);
  Status beginRoutine(int64_t step);
  Status readData(const std::function<Status()> &read); // and counts the time
  Status begin();
  Status loadParameters();
  Status loadEvaluated();
  Status openState();
  ControlPlane &control() const { return engine->fabric().control(); }
  // Ok where it is on all processes.
  Status ofAll(const Status &mine) const { return control().outcome(mine, options.limits.preparation); }
  Status agreeOnRun();
  Status openFolder();
  Status goOn();
  Status resume(const Snapshot &saved);
  bool isSnapshotDue(int64_t step) const { // after so many steps
    return saver && (step == total || (options.snapshotEvery > 0 && step % options.snapshotEvery == 0));
  }
  bool isMirrorDue(int64_t step) const { return mirror && step < total && step % options.mirrorEvery == 0; }
  Status save(std::optional<double> score);
  Status mirrorState();
  bool noteScore(double score);
  void tell(const StepMetrics &step);
  void tellSlowData(const StepMetrics &step);
  StepMetrics shapeOfMetrics() const;
  Status writeRecords();
  void note(const std::string &text) const;
  void warn(const std::string &text) const;
  WeightCheck weightCheck() const {
    return {options.checkWeights, [this](const std::string &text) { note(text); }};
  }

  const plan::Plan &source;
  const plan::Training &training;
  TrainOptions options;
  std::unique_ptr<StepData> data; // read by a step that goes on until the executor is gone
  std::unique_ptr<Executor> engine;
  std::unique_ptr<StateSaver> saver; // null without a folder of snapshots
  std::unique_ptr<Mirror> mirror;    // null where nothing is mirrored
  MetricsFile metricsFile;
  EventFile eventFile;
  PrometheusFile prometheusFile;
  // Steps may run into each other where this trainer takes them all.
  bool ownsLoop = false, isFilled = false, countsSkipped = false, isEvaluationBound = false;
  int64_t total = 0, done = 0, skipped = 0, resumedAt = 0;
  BestScore best;
  std::string mirrorObstacle;           // why this process kept no mirror of its last step
  std::string resumedFrom;              // a snapshot
  std::string run;                      // SnapshotManifest::run
  std::vector<std::string> candidates;  // on rank 0: snapshots that were not proposed yet, the newest last
  int64_t begun = 0;                    // steps, of which `done` are finished
  int64_t endOfLast = 0;                // step, on the clock
  int64_t dataNanoseconds = 0;          // of the step under way
  Status failedAhead;                   // why the next step could not begin
  int64_t told = 0;                     // steps
  bool tellsBadData = false;            // has looked for numbers that are not finite
  double firstSteps = 0, firstData = 0; // seconds of some of them
};

Status PlanTrainer::open() {
  CLEAVE_RETURN_IF_ERROR(checkSchedule(training.lr()));
  CLEAVE_ASSIGN_OR_RETURN(dist::Mesh mesh, meshOf(source.mesh()));
  const std::string fingerprint = planFingerprint(source);
  NetworkOptions network = options.network;
  network.meetingSeconds = options.limits.meeting.seconds;
  CLEAVE_ASSIGN_OR_RETURN(std::unique_ptr<Fabric> fabric, openFabric(mesh, fingerprint, network));
  // Before anything that all processes do as their plan says: of different plans some would wait for ever.
  CLEAVE_ASSIGN_OR_RETURN(
      bool agreed, fabric->control().allEqual(std::hash<std::string>{}(fingerprint), options.limits.preparation));
  if (!agreed) return inputError("the processes of this run were given different plans");
  ExecutorOptions engineOptions{.threads = options.threads,
                                .trace = {.recordsPerLane = options.trace.empty() ? 0u : 100'000u,
                                          .firstStep = options.traceFrom,
                                          .lastStep = options.traceTo > 0 ? options.traceTo : INT64_MAX},
                                .debug = options.debug,
                                .graphs = options.graphs,
                                .limits = options.limits,
                                .tell = options.onNote,
                                .onLost = options.onLost};
  CLEAVE_ASSIGN_OR_RETURN(engine, Executor::create(source, std::move(fabric), engineOptions));
  if (!engine->has("step")) return inputError("the plan has no routine 'step'");
  countsSkipped = std::any_of(source.parameters().begin(), source.parameters().end(),
                              [](const plan::Parameter &parameter) { return parameter.name() == skippedName; });
  data = std::make_unique<StepData>(source, *engine);
  CLEAVE_RETURN_IF_ERROR(
      ofAll(data->open({.path = options.data, .evaluatesAll = options.onlyEvaluates && options.data})));
  if (options.localBatches) {
    Result<std::vector<SampleRange>> own = samplesRead(source, *engine);
    CLEAVE_RETURN_IF_ERROR(ofAll(own.status()));
    data->bindLocally(std::move(*own));
  }
  total = options.steps > 0 ? options.steps : data->stepsOfEpoch();
  CLEAVE_RETURN_IF_ERROR(agreeOnRun());
  return openState();
}

// What ranks do together, and what they read, before one of them does it.
Status PlanTrainer::agreeOnRun() {
  if (control().size() == 1) return Status::ok();
  std::error_code failure;
  const std::string folder = options.snapshots.empty() ? ""
                             : options.ownSnapshots    ? "one for each process"
                                                       : std::filesystem::absolute(options.snapshots, failure).string();
  return agreeOn(control(),
                 {{"the number of steps", std::to_string(total)},
                  {"--snapshot", folder},
                  {"--snapshot-every", std::to_string(options.snapshotEvery)},
                  {"--keep", std::to_string(options.keep.newest)},
                  {"--keep-best", options.keep.best ? "given" : "not given"},
                  {"--resume", options.resume ? "given" : "not given"},
                  {"--overwrite", options.overwrite ? "given" : "not given"},
                  {"--accept-changes", options.acceptChanges ? "given" : "not given"},
                  {"--mirror", std::to_string(options.mirrorEvery)},
                  {"local batches", options.localBatches ? "given" : "not given"},
                  {"the data's digest", data->digest()}},
                 options.limits.preparation);
}

// A snapshot's weights, or the model's.
Status PlanTrainer::loadEvaluated() {
  if (options.snapshots.empty()) return loadParameters();
  CLEAVE_ASSIGN_OR_RETURN(std::unique_ptr<Snapshot> saved,
                          Snapshot::open(options.snapshots, [this](const std::string &text) { warn(text); }));
  return resume(*saved);
}

// Begins at the model's weights or at a snapshot.
Status PlanTrainer::openState() {
  if (options.onlyEvaluates) return ofAll(loadEvaluated());
  best.monitor = evaluationRules().monitor;
  const bool hasFolder = !options.snapshots.empty();
  if (options.resume && !hasFolder && options.mirrorEvery == 0)
    return inputError("--resume needs --snapshot DIR: the folder to resume from");
  if (options.keep.best && !data->evaluates())
    return inputError("--keep-best needs an evaluation: the recipe has no `eval`");
  if (hasFolder)
    saver =
        std::make_unique<StateSaver>(source, *engine,
                                     SaveOptions{options.snapshots, options.ownSnapshots, options.keep,
                                                 options.limits.step, [this](const std::string &text) { warn(text); }});
  CLEAVE_RETURN_IF_ERROR(ofAll(saver && saver->keepsFolder() ? openFolder() : Status::ok()));
  if (!options.runFolder.empty())
    CLEAVE_RETURN_IF_ERROR(ofAll(Mirror::noteHosts(options.runFolder, engine->fabric().hosts())));
  if (options.mirrorEvery > 0) {
    CLEAVE_RETURN_IF_ERROR(ofAll(Mirror::claim(options.runFolder)));
    mirror = std::make_unique<Mirror>(source, *engine, options.runFolder, options.limits.step);
  }
  CLEAVE_RETURN_IF_ERROR(goOn());
  if (const int64_t repeated = data->repeatedSamples(); repeated > 0)
    note(fmt::format(
        "{} {} repeated in each epoch, so that its last batch is whole (data.last_batch: drop leaves the rest out)",
        repeated, repeated == 1 ? "sample is" : "samples are"));
  if (std::string filled = data->filled(); !filled.empty()) note("inputs that the data does not have: " + filled);
  if (!resumedFrom.empty())
    note(fmt::format("resumed from step {} in {}", done, resumedFrom));
  else if (options.resume && !options.snapshots.empty())
    note(fmt::format("no snapshot in {}: the run begins at step {}", options.snapshots, done + 1));
  if (total > 0 && done == total) note(fmt::format("nothing to do: step {} is the last", total));
  return Status::ok();
}

// Rank 0 alone looks at a folder of all: what ranks see of a shared one may differ.
Status PlanTrainer::openFolder() {
  bool goesOn = false;
  if (options.resume) {
    CLEAVE_ASSIGN_OR_RETURN(bool isFresh, isFreshSnapshotFolder(options.snapshots));
    goesOn = !isFresh;
  }
  CLEAVE_RETURN_IF_ERROR(saver->prepare(goesOn, options.overwrite));
  if (!goesOn) return Status::ok();
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> listed, snapshotsIn(options.snapshots));
  if (listed.empty()) return inputError(options.snapshots + ": holds no snapshot");
  if (isFirstProcess()) candidates.assign(listed.rbegin(), listed.rend());
  return Status::ok();
}

std::string randomDigits() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// From the newest state that all ranks can read, in snapshots or in the processes' memory; else from the weights.
Status PlanTrainer::goOn() {
  ResumeVote vote(source, control(),
                  {.limit = options.limits.preparation,
                   .acceptChanges = options.acceptChanges,
                   .folder = options.ownSnapshots ? options.snapshots : "",
                   .load = [this](const Snapshot &saved) { return resume(saved); },
                   .note = [this](const std::string &text) { note(text); },
                   .warn = [this](const std::string &text) { warn(text); }});
  CLEAVE_ASSIGN_OR_RETURN(ResumedState state,
                          vote.choose(std::move(candidates), options.resume ? mirror.get() : nullptr));
  resumedFrom = state.path, run = state.run;
  if (resumedFrom.empty()) CLEAVE_RETURN_IF_ERROR(ofAll(begin()));
  if (run.empty()) run = randomDigits();
  CLEAVE_ASSIGN_OR_RETURN(run, control().fromRank0(run, options.limits.preparation)); // all go on in the run of rank 0
  if (saver) CLEAVE_RETURN_IF_ERROR(saver->begin(run));
  if (mirror) mirror->setRun(run);
  return Status::ok();
}

void PlanTrainer::note(const std::string &text) const {
  if (isFirstProcess() && options.onNote) options.onNote(text);
}

void PlanTrainer::warn(const std::string &text) const {
  if (options.onWarning) options.onWarning(text);
}

// At the model's weights, and after the steps of the training that this one continues.
Status PlanTrainer::begin() {
  for (const plan::Parameter &parameter : source.parameters())
    if (parameter.since() > 0)
      return inputError("the plan goes on from a snapshot, by `cleave run --resume`, and there is none");
  CLEAVE_RETURN_IF_ERROR(loadParameters());
  done = begun = resumedAt = training.steps_before();
  if (done > 0) note(fmt::format("goes on after the {} steps of 'init.optimizer'", done));
  return data->restore({}, done);
}

Status PlanTrainer::loadParameters() {
  WeightReader weights(source, options.model, weightCheck());
  for (int64_t device : engine->devices())
    for (const plan::Parameter &parameter : source.parameters())
      if (engine->holds(device, parameter))
        CLEAVE_RETURN_IF_ERROR(weights.initialize(parameter, engine->shardShape(device, parameter),
                                                  engine->shard(device, parameter, ShardAccess::Replace)));
  return engine->lastFailure();
}

Status PlanTrainer::resume(const Snapshot &saved) {
  CLEAVE_RETURN_IF_ERROR(checkResumes(saved, source));
  CLEAVE_ASSIGN_OR_RETURN(int64_t before, skippedBefore(saved));
  WeightReader weights(source, options.model, weightCheck());
  for (int64_t device : engine->devices())
    for (const plan::Parameter &parameter : source.parameters()) {
      if (!engine->holds(device, parameter)) continue;
      Shard box = engine->shardShape(device, parameter);
      std::vector<int64_t> shape(parameter.shape().begin(), parameter.shape().end());
      ShardBytes bytes = engine->shard(device, parameter, ShardAccess::Replace);
      const std::string averaged = averagedBy(parameter.name());
      if (parameter.snapshot() && !beginsAt(saved, parameter, before))
        CLEAVE_RETURN_IF_ERROR(saved.read(parameter.name(), parameter.dtype(), shape, box, bytes));
      else if (saved.manifest().tensors.contains(averaged)) // a moving average begins with the weight
        CLEAVE_RETURN_IF_ERROR(saved.read(averaged, parameter.dtype(), shape, box, bytes));
      else
        CLEAVE_RETURN_IF_ERROR(weights.initialize(parameter, box, bytes));
    }
  CLEAVE_RETURN_IF_ERROR(engine->lastFailure());
  done = begun = resumedAt = saved.manifest().step;
  skipped = before;
  if (saved.manifest().best.monitor == best.monitor) best = saved.manifest().best;
  return options.onlyEvaluates ? Status::ok() : data->restore(saved.manifest().sampler, done);
}

Status PlanTrainer::save(std::optional<double> score) {
  return saver->save({.step = done, .sampler = data->before(done), .score = score, .best = best});
}

// Where there is no room the run goes on without, and says so once.
Status PlanTrainer::mirrorState() {
  CLEAVE_ASSIGN_OR_RETURN(std::string obstacle, mirror->save(done, data->before(done), best));
  if (!obstacle.empty() && mirrorObstacle.empty())
    warn(fmt::format("the state of step {} is not mirrored, which is tried again after later steps: {}", done,
                     obstacle));
  mirrorObstacle = obstacle;
  return Status::ok();
}

Status PlanTrainer::snapshot() {
  if (!saver) return inputError("no snapshot folder was given");
  CLEAVE_RETURN_IF_ERROR(save({}));
  return saver->finish();
}

Status PlanTrainer::readData(const std::function<Status()> &read) {
  const int64_t begin = nowNanoseconds();
  Status status = read();
  dataNanoseconds += nowNanoseconds() - begin;
  return status;
}

Status PlanTrainer::beginStep(int64_t step) {
  CLEAVE_RETURN_IF_ERROR(readData([&] { return data->ready(step); }));
  constexpr int64_t looked = 100; // steps from one comparison of local batches to the next
  if (options.localBatches && control().size() > 1 && (step - resumedAt) % looked == 0)
    CLEAVE_RETURN_IF_ERROR(
        checkSameParts(control(), data->boundSamples(step), data->boundDigests(step), options.limits.step));
  CLEAVE_RETURN_IF_ERROR(beginRoutine(step));
  ++begun;
  return Status::ok();
}

Status PlanTrainer::beginRoutine(int64_t step) {
  const std::vector<const std::byte *> &own = data->pointers(step);
  if (!stepsOverlap(source)) return engine->begin(routineOf(source, "step", data->shapeOf(step)), own, step, skipped);
  if (!isFilled) {
    CLEAVE_ASSIGN_OR_RETURN(auto filled, engine->run("fill", own, step, skipped));
  }
  isFilled = runsIntoNext(step);
  if (isFilled)
    if (Status next = readData([&] { return data->ready(step + 1); }); !next) {
      // The other processes run into the next step. Alone this step ends as the last one, and the next tells the error.
      if (std::ssize(engine->devices()) < engine->mesh().numDevices()) return next;
      isFilled = false;
    }
  if (!isFilled) return engine->begin("drain", own, step, skipped);
  return engine->begin("step", own, step, skipped, data->pointers(step + 1));
}

bool isNamedMetric(const std::string &output) {
  return output.starts_with("grad_norm.") || output.starts_with("loss.");
}

Result<StepMetrics> PlanTrainer::step() {
  int64_t begin = begun > done ? endOfLast : nowNanoseconds();
  CLEAVE_RETURN_IF_ERROR(failedAhead);
  if (begun == done) CLEAVE_RETURN_IF_ERROR(beginStep(done));
  const int64_t dataBefore = std::exchange(dataNanoseconds, 0);
  if (beginsNext(done)) failedAhead = beginStep(done + 1); // this one's results are told first
  if (failedAhead)
    (void)readData([&] {
      data->readAhead(ownsLoop ? total : std::numeric_limits<int64_t>::max());
      return Status::ok();
    });
  CLEAVE_ASSIGN_OR_RETURN(auto outputs, engine->finish());
  endOfLast = nowNanoseconds();
  StepMetrics metrics;
  metrics.learningRate = learningRate(training.lr(), done);
  metrics.step = ++done;
  metrics.steps = total;
  metrics.stepSeconds = static_cast<double>(endOfLast - begin) / 1e9;
  // Beside the step, data holds up only those who have nothing to do.
  const double beside = static_cast<double>(std::exchange(dataNanoseconds, 0)) / 1e9;
  metrics.dataSeconds =
      static_cast<double>(dataBefore) / 1e9 + std::min(beside, engine->idleSeconds().value_or(beside));
  if (outputs.count("loss")) metrics.loss = outputs.at("loss");
  if (!std::isfinite(metrics.loss) && !tellsBadData) {
    tellsBadData = true;
    if (const std::string bad = data->notFinite(done - 1); !bad.empty())
      warn(fmt::format("the loss of step {} is {}: {}", done, metrics.loss, bad));
  }
  if (outputs.count("grad_norm")) metrics.gradNorm = outputs.at("grad_norm");
  for (const auto &[name, value] : outputs)
    if (isNamedMetric(name)) metrics.named[name] = value;
  if (outputs.count("loss_scale")) metrics.lossScale = outputs.at("loss_scale");
  if (outputs.count("skipped")) metrics.skipped = skipped = std::llround(outputs.at("skipped"));
  const size_t shape = data->shapeOf(done - 1);
  metrics.samplesPerSecond = static_cast<double>(data->samplesOf(done - 1)) / metrics.stepSeconds;
  const int64_t positions = data->positionsOf(done - 1);
  metrics.tokensPerSecond = positions > 0
                                ? static_cast<double>(positions) / metrics.stepSeconds
                                : metrics.samplesPerSecond * static_cast<double>(tokensPerSample(source, shape));
  metrics.tflopsPerDevice =
      flopsOfStep(source, shape) / metrics.stepSeconds / static_cast<double>(engine->mesh().numDevices()) / 1e12;
  metrics.peakBytesPerDevice = engine->peakBytes();
  metrics.hostBytesPerDevice = engine->hostBytes();
  if (data->isEvaluationDue(done)) {
    EvaluationSums sums;
    CLEAVE_RETURN_IF_ERROR(data->evaluate(*engine, done, evaluationRules().batches, sums));
    metrics.evaluation = sums.result(evaluationRules());
  }
  return metrics;
}

// Whether it is better than all before.
bool PlanTrainer::noteScore(double score) {
  const bool isBetter = std::isfinite(score) && (!best.score || score < *best.score - data->evaluationRules().minDelta);
  best = isBetter ? BestScore{score, 0, best.monitor} : BestScore{best.score, best.since + 1, best.monitor};
  return isBetter;
}

void PlanTrainer::tell(const StepMetrics &step) {
  if (!isFirstProcess()) return;
  tellSlowData(step);
  if (Status written = metricsFile.write(step); !written) {
    metricsFile.close();
    warn(written.message() + "; the run goes on without metrics");
  }
  if (Status written = eventFile.write(step); !written) {
    eventFile.close();
    warn(written.message() + "; the run goes on without events");
  }
  if (Status written = prometheusFile.write(step); !written) {
    prometheusFile.close();
    warn(written.message() + "; the run goes on without it");
  }
  if (options.onStep) options.onStep(step);
}

StepMetrics PlanTrainer::shapeOfMetrics() const {
  StepMetrics shape;
  for (const plan::Program &program : source.programs())
    for (const plan::Fragment &fragment : program.fragments())
      for (const plan::OutputBinding &output : fragment.outputs())
        if (isNamedMetric(output.name())) shape.named[output.name()];
  if (data->evaluates()) {
    EvaluationResult &evaluation = shape.evaluation.emplace();
    for (const plan::LossPart &part : training.losses()) evaluation.losses[part.name()] = 0;
    for (const EvaluationRules::Metric &metric : data->evaluationRules().metrics)
      if (metric.kind != "confusion") evaluation.metrics[metric.name] = 0;
  }
  return shape;
}

// Once, of the first twenty steps after the first, if data takes a tenth of them and a millisecond each.
void PlanTrainer::tellSlowData(const StepMetrics &step) {
  constexpr int64_t steps = 20;
  if (++told == 1 || told > steps + 1) return;
  firstSteps += step.stepSeconds, firstData += step.dataSeconds;
  if (told == steps + 1 && firstData > 0.1 * firstSteps && firstData > 1e-3 * steps)
    warn(fmt::format("data takes {:.0f} % of a step: `data_s` of --metrics tells it for each",
                     100 * firstData / firstSteps));
}

Status PlanTrainer::runToEnd() {
  if (isFirstProcess() && !options.metrics.empty())
    CLEAVE_RETURN_IF_ERROR(metricsFile.open(options.metrics, done, shapeOfMetrics()));
  if (isFirstProcess() && !options.tensorboard.empty())
    CLEAVE_RETURN_IF_ERROR(eventFile.open(options.tensorboard, done));
  if (isFirstProcess() && !options.prometheus.empty()) CLEAVE_RETURN_IF_ERROR(prometheusFile.open(options.prometheus));
  if (isFirstProcess() && options.openOutputs) CLEAVE_RETURN_IF_ERROR(options.openOutputs());
  if (total <= 0) return inputError("no number of steps: give --steps N");
  if (done > total)
    return inputError(fmt::format("{} has {} steps, which are more than the {} of --steps: nothing was done",
                                  resumedFrom.empty() ? "the state" : resumedFrom, done, total));
  ownsLoop = true;
  const int64_t wanted = total;
  StopVote vote(engine->fabric(), options.stopAsked, options.limits.step);
  int signal = 0;
  while (done < total) {
    CLEAVE_ASSIGN_OR_RETURN(StepMetrics taken, step());
    tell(taken);
    CLEAVE_RETURN_IF_ERROR(failedAhead); // before a vote on stopping, which may find that no step is left to tell it
    if (signal == 0) {
      CLEAVE_ASSIGN_OR_RETURN(int asked, vote.afterStep(taken.stepSeconds));
      signal = asked;
      // Where steps run into each other, the next has begun.
      if (signal != 0) total = std::min(total, std::max(done, begun + (isFilled ? 1 : 0)));
    }
    std::optional<double> score;
    if (taken.evaluation) score = data->evaluationRules().score(*taken.evaluation);
    const bool isBest = score && noteScore(*score);
    if (isMirrorDue(done)) CLEAVE_RETURN_IF_ERROR(mirrorState());
    const int64_t patience = data->evaluationRules().patience;
    const bool isEnough = taken.evaluation && patience > 0 && best.since >= patience;
    if (isSnapshotDue(done) || (saver && (isEnough || (isBest && options.keep.best))))
      CLEAVE_RETURN_IF_ERROR(save(score));
    if (!isEnough) continue;
    note(fmt::format("ends early after step {}: eval {} has not been better for {} evaluations", done,
                     data->evaluationRules().monitor, best.since));
    break;
  }
  if (Status written = prometheusFile.flush(); !written) warn(written.message());
  if (saver) CLEAVE_RETURN_IF_ERROR(saver->finish());
  CLEAVE_RETURN_IF_ERROR(leave());
  CLEAVE_RETURN_IF_ERROR(writeRecords());
  if (isFirstProcess() && options.onEnd)
    options.onEnd({.step = done,
                   .steps = wanted,
                   .resumedStep = resumedAt,
                   .resumedFrom = resumedFrom,
                   .signal = done < total || done == wanted ? 0 : signal,
                   .isEarly = done < total});
  if (done < total || done == wanted) return Status::ok(); // early, or all
  return {ErrorKind::Stopped,
          fmt::format("stopped by SIG{} after step {} of {}; {}", sigabbrev_np(signal), done, wanted,
                      saver ? "its snapshot is in " + options.snapshots + ": --resume goes on"
                            : "nothing is saved (there was no --snapshot DIR)")};
}

// Each process writes its own devices': all but the first beside the file that was asked for.
Status PlanTrainer::writeRecords() {
  const std::string own = isFirstProcess() ? "" : fmt::format(".rank-{}", engine->devices().front());
  Status status;
  if (!options.trace.empty()) status = engine->writeTrace(options.trace + own);
  if (!options.counters.empty() && status)
    status = writeFileAtomically(trafficJson(*engine, stepsRun()), options.counters + own);
  if (status) return status;
  return {static_cast<ErrorKind>(status.exitStatus()),
          fmt::format("{}; all {} steps are done{}", status.message(), done,
                      saver ? ", and their snapshot is in " + options.snapshots : "")};
}

} // namespace

Result<std::unique_ptr<Trainer>> Trainer::create(const plan::Plan &plan, TrainOptions options) {
  auto trainer = std::make_unique<PlanTrainer>(plan, std::move(options));
  CLEAVE_RETURN_IF_ERROR(trainer->open());
  return std::unique_ptr<Trainer>(std::move(trainer));
}

Result<EvaluationResult> evaluate(const plan::Plan &plan, TrainOptions options, int64_t batches) {
  options.onlyEvaluates = true;
  PlanTrainer trainer(plan, std::move(options));
  EvaluationSums sums;
  Status status = trainer.open();
  if (status) status = trainer.evaluate(batches, sums);
  if (status) status = trainer.leave();
  if (!status) {
    trainer.giveUp(status);
    return status;
  }
  EvaluationResult result = sums.result(trainer.evaluationRules());
  result.heldOut = trainer.heldOutSamples(), result.isFirst = trainer.isFirstProcess();
  return result;
}

Status train(const plan::Plan &plan, const TrainOptions &options) {
  PlanTrainer trainer(plan, options);
  Status status = trainer.open();
  if (status && options.onBegin) options.onBegin();
  if (status) status = trainer.runToEnd();
  if (!status && status.exitStatus() != int(ErrorKind::Stopped)) trainer.giveUp(status);
  return status;
}

} // namespace cleave::runtime
