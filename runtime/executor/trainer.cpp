#include "runtime/executor/trainer.h"
#include "runtime/comm/open_fabric.h"
#include "runtime/data/dataset.h"
#include "runtime/data/sampler.h"
#include "runtime/executor/metrics_file.h"
#include "runtime/executor/schedule.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/loss_scale_names.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/routine.h"
#include "runtime/state/snapshot.h"
#include "runtime/state/weights.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <future>
#include <numeric>
#include <thread>
#include <yaml-cpp/yaml.h>

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
  Executor &executor() override { return *engine; }
  Status bind(const std::string &input, const void *data, int64_t bytes) override;
  int64_t stepsRun() const { return done - resumedAt; }
  // Tells the other processes why this one ends.
  void giveUp(const Status &why) {
    if (engine) engine->fabric().abort(why.message(), why.exitStatus());
  }
  // From here on all steps are taken by step(), and snapshots where `isSnapshotDue` says so: steps may run into each
  // other.
  void runToTheEnd() { toTheEnd = true; }
  bool isSnapshotDue(int64_t step) const { // after so many steps
    bool isLast = step == total;
    return !options.snapshots.empty() && (isLast || (options.snapshotEvery > 0 && step % options.snapshotEvery == 0));
  }
  bool isFirstProcess() const { return engine->devices().front() == 0; }

private:
  // An input of a routine: its field of the data, and the microbatches that are fed.
  struct Feed {
    size_t field = 0;
    int64_t sampleBytes = 0, samples = 0; // of one microbatch over all devices; without samples: the whole input, 1
    int64_t outer = 1;                    // a sample is so many pieces, which the other samples' lie between
    bool withoutSamples = false;          // the same for all microbatches
    std::vector<std::byte> bytes;         // of all microbatches, as the executor takes them
    const std::byte *bound = nullptr;     // the caller's global batch
    bool read = true;                     // by a device of this process

    int64_t microbatchBytes() const { return samples * sampleBytes; }
    int64_t stepBytes(int64_t microbatches) const { return microbatchBytes() * (withoutSamples ? 1 : microbatches); }
    // Whether the caller's global batch has the microbatches side by side in each piece.
    bool isCutFromBound(int64_t microbatches) const { return bound && outer > 1 && microbatches > 1; }
  };
  struct Feeds {
    int64_t samples() const { // of one microbatch
      auto found = std::ranges::find(inputs, false, &Feed::withoutSamples);
      return found == inputs.end() ? 1 : found->samples;
    }
    std::vector<Feed> inputs;                // in the order of inputsOf(routine)
    int64_t microbatches = 0, step = -1;     // whose data they have
    std::vector<const std::byte *> pointers; // as Executor::run takes them
    std::vector<int64_t> indices;            // of the samples, microbatch by microbatch
    SamplerState before;                     // of the sampler, when it gave them
    std::vector<std::future<Status>> reading;
  };
  Status openDataset();
  Status makeFeeds();
  Result<Feeds> feedsOf(const std::string &routine);
  Status beginFill(Feeds &feeds, const Dataset *data, Sampler *order);
  Status endFill(Feeds &feeds);
  Status read(Feeds &feeds, const Dataset &data, int64_t part, int64_t parts);
  bool isEvaluationDue(int64_t step) const { return evalEvery > 0 && data.evaluation && step % evalEvery == 0; }
  // Whether a step's last backwards and the next one's first forwards run at the same time: nothing else comes between.
  bool runsIntoNext(int64_t step) const {
    return toTheEnd && runsOn(source) && step + 1 < total && !isSnapshotDue(step + 1) && !isEvaluationDue(step + 1);
  }
  Feeds &feedsOfStep(int64_t step) { return stepFeeds[static_cast<size_t>(step) % stepFeeds.size()]; }
  Status beginData(int64_t step);
  Status readyData(int64_t step);
  Status fetchAhead();
  Status beginStep(int64_t step);
  Status loadParameters();
  Status resume();
  Result<double> evaluate();
  void note(const std::string &text) const;
  int64_t snapshotBytes() const;
  double writingSeconds() const;
  Status meet(double seconds);

  const plan::Plan &source;
  const plan::Training &training;
  TrainOptions options;
  std::unique_ptr<Executor> engine;
  std::vector<Field> fields;
  DataSource data;
  std::unique_ptr<Sampler> sampler;
  // Of the step that runs; where steps run into each other, of the one that ends, the next, and what it is ahead of;
  // and of the next one that is read beside them, where data is slow.
  std::vector<Feeds> stepFeeds;
  Feeds evaluateFeeds;
  bool toTheEnd = false, isFilled = false, countsSkipped = false;
  int64_t total = 0, done = 0, skipped = 0, resumedAt = 0, evalEvery = 0, evalBatches = 0;
  int64_t begun = 0;     // steps
  int64_t drawn = 0;     // steps whose samples are taken
  int64_t endOfLast = 0; // step, on the clock
};

Status PlanTrainer::open() {
  CLEAVE_RETURN_IF_ERROR(checkSchedule(training.lr()));
  Result<dist::Mesh> mesh = meshOf(source.mesh());
  if (!mesh) return mesh.status();
  Result<std::unique_ptr<Fabric>> fabric = openFabric(*mesh);
  if (!fabric) return fabric.status();
  // Before anything that all processes do as their plan says: of different plans some would wait for ever.
  Result<bool> agreed = (*fabric)->agree(std::hash<std::string>{}(planFingerprint(source)));
  if (!agreed) return agreed.status();
  if (!*agreed) return inputError("the processes of this run were given different plans");
  ExecutorOptions engineOptions{.threads = options.threads,
                                .traceRecords = options.trace.empty() ? 0u : 100'000u,
                                .debug = options.debug,
                                .timeoutSeconds = options.stepTimeout};
  Result<std::unique_ptr<Executor>> made = Executor::create(source, std::move(*fabric), engineOptions);
  if (!made) return made.status();
  engine = std::move(*made);
  if (!engine->has("step")) return inputError("the plan has no routine 'step'");
  countsSkipped = std::any_of(source.parameters().begin(), source.parameters().end(),
                              [](const plan::Parameter &parameter) { return parameter.name() == skippedName; });
  CLEAVE_RETURN_IF_ERROR(openDataset());
  CLEAVE_RETURN_IF_ERROR(makeFeeds());
  total = options.steps > 0 ? options.steps
          : sampler         ? sampler->samplesPerEpoch() / std::max<int64_t>(1, training.global_batch())
                            : 0;
  if (options.resume && options.snapshots.empty())
    return inputError("--resume needs --snapshot DIR: the folder to resume from");
  const bool resumed = options.resume && !isFreshSnapshotFolder(options.snapshots);
  if (isFirstProcess() && !options.snapshots.empty())
    CLEAVE_RETURN_IF_ERROR(prepareSnapshotFolder(
        options.snapshots, {.goesOn = resumed, .overwrite = options.overwrite, .bytes = snapshotBytes()}));
  CLEAVE_RETURN_IF_ERROR(resumed ? resume() : loadParameters());
  if (resumed) note(fmt::format("resumed from step {} in {}", done, options.snapshots));
  if (total > 0 && done >= total) note(fmt::format("nothing to do: step {} is the last", total));
  return Status::ok();
}

void PlanTrainer::note(const std::string &text) const {
  if (isFirstProcess() && options.onNote) options.onNote(text);
}

int64_t PlanTrainer::snapshotBytes() const {
  int64_t bytes = 0;
  for (const plan::Parameter &parameter : source.parameters())
    if (parameter.snapshot()) bytes += elementCount(parameter.shape()) * byteSize(parameter.dtype());
  return bytes;
}

Status PlanTrainer::openDataset() {
  Result<std::vector<Field>> found = dataFields(inputsOf(source, "step"));
  if (!found) return found.status();
  fields = std::move(*found);
  try {
    if (!training.eval_yaml().empty())
      if (YAML::Node eval = YAML::Load(training.eval_yaml()); eval.IsMap()) {
        evalEvery = eval["every"].as<int64_t>(0);
        evalBatches = eval["batches"].as<int64_t>(10);
      }
    if (training.data_yaml().empty() && !options.data) return Status::ok(); // the caller binds arrays
    Result<DataSource> opened = openData(training.data_yaml(), fields, {options.data.value_or(""), training.seed()});
    if (!opened) return opened.status();
    data = std::move(*opened);
    YAML::Node map = YAML::Load(training.data_yaml());
    bool dropLast = map.IsMap() && map["drop_last"].as<bool>(false);
    if (data.train->size() < 1) return inputError("the training data has no sample");
    sampler = std::make_unique<Sampler>(
        data.train->size(), SamplerOptions{training.global_batch(), training.seed(), data.train->shuffle(), dropLast});
  } catch (const YAML::Exception &error) {
    return inputError(fmt::format("the plan's data or eval map is not valid: {}", error.what()));
  }
  return Status::ok();
}

Status PlanTrainer::makeFeeds() {
  for (size_t count = (runsOn(source) ? 3 : 1) + (data.train && data.train->isSlow()); stepFeeds.size() < count;) {
    Result<Feeds> made = feedsOf("step");
    if (!made) return made.status();
    stepFeeds.push_back(std::move(*made));
  }
  if (!engine->has("evaluate")) return Status::ok();
  Result<Feeds> made = feedsOf("evaluate");
  if (!made) return made.status();
  evaluateFeeds = std::move(*made);
  return Status::ok();
}

Result<PlanTrainer::Feeds> PlanTrainer::feedsOf(const std::string &routine) {
  Feeds feeds;
  feeds.microbatches = microbatchesOf(source, routine);
  for (const plan::InputBinding *input : inputsOf(source, routine)) {
    Feed feed;
    while (feed.field < fields.size() && fields[feed.field].name != input->name()) ++feed.field;
    if (feed.field == fields.size())
      return inputError(fmt::format("routine '{}' reads '{}', which 'step' does not", routine, input->name()));
    feed.withoutSamples = input->without_samples();
    feed.samples = feed.withoutSamples ? 1 : input->global_shape(static_cast<int>(input->sample_dim()));
    for (int64_t dim = 0; !feed.withoutSamples && dim < input->sample_dim(); ++dim)
      feed.outer *= input->global_shape(static_cast<int>(dim));
    feed.sampleBytes = fields[feed.field].bytes();
    feed.read = engine->reads(routine, input->name());
    if (feed.read) feed.bytes.resize(static_cast<size_t>(feed.stepBytes(feeds.microbatches)));
    feeds.inputs.push_back(std::move(feed));
  }
  feeds.pointers.resize(feeds.inputs.size() * static_cast<size_t>(feeds.microbatches));
  return feeds;
}

Status PlanTrainer::bind(const std::string &input, const void *array, int64_t bytes) {
  bool isKnown = false;
  for (Feeds &feeds : stepFeeds) {
    for (std::future<Status> &part : feeds.reading) part.wait();
    for (Feed &feed : feeds.inputs) {
      if (fields[feed.field].name != input) continue;
      int64_t wanted = feed.stepBytes(feeds.microbatches);
      if (bytes != wanted)
        return inputError(
            fmt::format("input '{}' needs {} bytes (the global batch of a step), {} are given", input, wanted, bytes));
      feed.bound = static_cast<const std::byte *>(array);
      isKnown = true;
    }
  }
  return isKnown ? Status::ok() : inputError(fmt::format("the plan has no input '{}'", input));
}

// Takes the samples of a batch and reads them; slow ones are read by threads, which endFill waits for.
Status PlanTrainer::beginFill(Feeds &feeds, const Dataset *from, Sampler *order) {
  feeds.indices.clear();
  feeds.reading.clear();
  if (order) feeds.before = order->state();
  for (int64_t microbatch = 0; microbatch < feeds.microbatches; ++microbatch) {
    std::span<const int64_t> indices;
    for (const Feed &feed : feeds.inputs) {
      if (feed.bound) continue;
      if (!from)
        return inputError(
            fmt::format("no data for input '{}': the recipe has no `data` and none is given", fields[feed.field].name));
      if (feed.withoutSamples) continue;
      if (indices.empty()) indices = order->next(feed.samples); // every process takes them, whatever it reads
      if (static_cast<int64_t>(indices.size()) != feed.samples)
        return inputError(
            fmt::format("inputs of different batch sizes ('{}' has {})", fields[feed.field].name, feed.samples));
    }
    feeds.indices.insert(feeds.indices.end(), indices.begin(), indices.end());
  }
  if (!from) return Status::ok();
  if (!from->isSlow()) return read(feeds, *from, 0, 1);
  // Half of the cores: the others are the step's, or other processes'.
  const int64_t parts = std::clamp<int64_t>(std::thread::hardware_concurrency() / 2, 1, 8);
  for (int64_t part = 0; part < parts; ++part)
    feeds.reading.push_back(
        std::async(std::launch::async, [this, &feeds, from, part, parts] { return read(feeds, *from, part, parts); }));
  return Status::ok();
}

// The samples of one part of each microbatch, into the inputs that this process reads.
Status PlanTrainer::read(Feeds &feeds, const Dataset &from, int64_t part, int64_t parts) {
  const int64_t samples = static_cast<int64_t>(feeds.indices.size()) / feeds.microbatches;
  const int64_t begin = samples * part / parts, count = samples * (part + 1) / parts - begin;
  for (int64_t microbatch = 0; microbatch < feeds.microbatches; ++microbatch)
    for (Feed &feed : feeds.inputs) {
      if (feed.bound || !feed.read) continue;
      if (feed.withoutSamples) {
        constexpr int64_t one = 0;
        if (part == 0 && microbatch == 0)
          CLEAVE_RETURN_IF_ERROR(from.fill(feed.field, std::span(&one, 1), feed.bytes.data()));
        continue;
      }
      std::span<const int64_t> indices(feeds.indices.data() + microbatch * samples + begin, static_cast<size_t>(count));
      std::byte *out = feed.bytes.data() + microbatch * feed.microbatchBytes();
      if (feed.outer == 1) {
        CLEAVE_RETURN_IF_ERROR(from.fill(feed.field, indices, out + begin * feed.sampleBytes));
        continue;
      }
      std::vector<std::byte> rows(static_cast<size_t>(count * feed.sampleBytes));
      CLEAVE_RETURN_IF_ERROR(from.fill(feed.field, indices, rows.data()));
      const int64_t piece = feed.sampleBytes / feed.outer;
      for (int64_t sample = 0; sample < count; ++sample)
        for (int64_t o = 0; o < feed.outer; ++o)
          std::copy_n(rows.data() + (sample * feed.outer + o) * piece, piece,
                      out + (o * feed.samples + begin + sample) * piece);
    }
  return Status::ok();
}

Status PlanTrainer::endFill(Feeds &feeds) {
  Status status;
  for (std::future<Status> &part : feeds.reading)
    if (Status read = part.get(); status) status = read;
  feeds.reading.clear();
  for (int64_t microbatch = 0; microbatch < feeds.microbatches; ++microbatch)
    for (size_t i = 0; i < feeds.inputs.size(); ++i) {
      Feed &feed = feeds.inputs[i];
      if (!feed.bound && !feed.read) continue;
      const int64_t begin = feed.withoutSamples ? 0 : microbatch * feed.microbatchBytes();
      const bool isCut = feed.isCutFromBound(feeds.microbatches);
      if (isCut && feed.read) {
        const int64_t width = feed.microbatchBytes() / feed.outer;
        for (int64_t o = 0; o < feed.outer; ++o)
          std::copy_n(feed.bound + (o * feeds.microbatches + microbatch) * width, width,
                      feed.bytes.data() + begin + o * width);
      }
      feeds.pointers[static_cast<size_t>(microbatch) * feeds.inputs.size() + i] =
          (feed.bound && !isCut ? feed.bound : feed.bytes.data()) + begin;
    }
  return status;
}

Status PlanTrainer::loadParameters() {
  WeightReader weights(source, options.model);
  for (int64_t device : engine->devices())
    for (const plan::Parameter &parameter : source.parameters())
      if (engine->holds(device, parameter))
        CLEAVE_RETURN_IF_ERROR(weights.initialize(parameter, engine->shardShape(device, parameter),
                                                  engine->shard(device, parameter, ShardAccess::Replace)));
  return engine->lastFailure();
}

// Of the steps that a snapshot stands after.
Result<int64_t> skippedBefore(const Snapshot &saved) {
  if (!saved.manifest().tensors.count(skippedName)) return int64_t{0};
  float count = 0;
  CLEAVE_RETURN_IF_ERROR(saved.read(skippedName, plan::F32, {}, Shard{}, std::as_writable_bytes(std::span(&count, 1))));
  return std::llround(count);
}

Status PlanTrainer::resume() {
  Result<std::unique_ptr<Snapshot>> opened = Snapshot::open(options.snapshots);
  if (!opened) return opened.status();
  const Snapshot &saved = **opened;
  CLEAVE_RETURN_IF_ERROR(checkResumes(saved, source));
  WeightReader weights(source, options.model);
  for (int64_t device : engine->devices())
    for (const plan::Parameter &parameter : source.parameters()) {
      if (!engine->holds(device, parameter)) continue;
      Shard box = engine->shardShape(device, parameter);
      std::vector<int64_t> shape(parameter.shape().begin(), parameter.shape().end());
      ShardBytes bytes = engine->shard(device, parameter, ShardAccess::Replace);
      if (parameter.snapshot())
        CLEAVE_RETURN_IF_ERROR(saved.read(parameter.name(), parameter.dtype(), shape, box, bytes));
      else
        CLEAVE_RETURN_IF_ERROR(weights.initialize(parameter, box, bytes));
    }
  CLEAVE_RETURN_IF_ERROR(engine->lastFailure());
  done = begun = drawn = resumedAt = saved.manifest().step;
  Result<int64_t> before = skippedBefore(saved);
  if (!before) return before.status();
  skipped = *before;
  return sampler ? sampler->restore(saved.manifest().sampler) : Status::ok();
}

// What a process takes at most to write its devices' parameters, another one's too: disks are seldom as slow as 16 MiB
// a second.
double PlanTrainer::writingSeconds() const { return static_cast<double>(snapshotBytes()) / (16 << 20); }

// A rank that does not come to where all meet is given up as one that does not end a step is.
Status PlanTrainer::meet(double seconds) {
  Status met = engine->fabric().barrier(seconds);
  if (met) return met;
  return runError(fmt::format("rank {}, step {}, snapshot: {}", engine->devices().front(), done, met.message()));
}

Status PlanTrainer::snapshot() {
  if (options.snapshots.empty()) return inputError("no snapshot folder was given");
  SnapshotManifest manifest = manifestOf(source);
  manifest.step = done;
  const Feeds &next = feedsOfStep(done);
  if (sampler) manifest.sampler = next.step == done ? next.before : sampler->state();
  SnapshotWriter writer(options.snapshots, manifest);
  if (isFirstProcess()) CLEAVE_RETURN_IF_ERROR(writer.begin());
  CLEAVE_RETURN_IF_ERROR(meet(options.stepTimeout));
  for (int64_t device : engine->devices()) {
    std::vector<HeldBox> boxes;
    std::deque<ShardBytes> held;
    for (const plan::Parameter &parameter : source.parameters())
      if (writesBox(parameter, engine->mesh(), device))
        boxes.push_back({&parameter, engine->shardShape(device, parameter),
                         held.emplace_back(engine->shard(device, parameter, ShardAccess::Read))});
    CLEAVE_RETURN_IF_ERROR(engine->lastFailure());
    CLEAVE_RETURN_IF_ERROR(writer.writeRank(device, boxes));
  }
  CLEAVE_RETURN_IF_ERROR(meet(options.stepTimeout + writingSeconds()));
  if (isFirstProcess()) CLEAVE_RETURN_IF_ERROR(writer.commit());
  return meet(options.stepTimeout);
}

Result<double> PlanTrainer::evaluate() {
  if (evaluateFeeds.inputs.empty()) return std::nan("");
  // As many samples a batch as a step trains on, whatever the microbatches are.
  int64_t samples = evaluateFeeds.samples() * evaluateFeeds.microbatches,
          runs = std::max<int64_t>(1, training.global_batch() / std::max<int64_t>(1, samples)), batch = samples * runs;
  int64_t batches = std::max<int64_t>(1, std::min(evalBatches, data.evaluation->size() / std::max<int64_t>(1, batch)));
  Sampler order(data.evaluation->size(), {.batch = batch, .seed = training.seed(), .shuffle = false});
  double sum = 0, weights = 0;
  for (int64_t run = 0; run < batches * runs; ++run) {
    CLEAVE_RETURN_IF_ERROR(beginFill(evaluateFeeds, data.evaluation.get(), &order));
    CLEAVE_RETURN_IF_ERROR(endFill(evaluateFeeds));
    auto outputs = engine->run("evaluate", evaluateFeeds.pointers, done);
    if (!outputs) return outputs.status();
    double weight = outputs->count("loss_weight") ? outputs->at("loss_weight") : 1;
    sum += outputs->at("loss") * weight;
    weights += outputs->count("loss_weight") ? weight : 1.0 / static_cast<double>(runs); // none: the loss is a sum
  }
  return sum / weights;
}

Status PlanTrainer::beginData(int64_t step) {
  Feeds &feeds = feedsOfStep(step);
  if (feeds.step == step) return Status::ok();
  feeds.step = step, drawn = step + 1;
  return beginFill(feeds, data.train.get(), sampler.get());
}

Status PlanTrainer::readyData(int64_t step) {
  CLEAVE_RETURN_IF_ERROR(beginData(step));
  return endFill(feedsOfStep(step));
}

// What is wrong with the data of a step shows when that step begins.
Status PlanTrainer::fetchAhead() {
  bool isLast = toTheEnd && drawn >= total;
  return data.train && data.train->isSlow() && !isLast ? beginData(drawn) : Status::ok();
}

Status PlanTrainer::beginStep(int64_t step) {
  ++begun;
  CLEAVE_RETURN_IF_ERROR(readyData(step));
  const std::vector<const std::byte *> &own = feedsOfStep(step).pointers;
  if (!runsOn(source)) return engine->begin("step", own, step, skipped);
  if (!isFilled) {
    auto filled = engine->run("fill", own, step, skipped);
    if (!filled) return filled.status();
  }
  isFilled = runsIntoNext(step);
  if (!isFilled) return engine->begin("drain", own, step, skipped);
  CLEAVE_RETURN_IF_ERROR(readyData(step + 1));
  return engine->begin("step", own, step, skipped, feedsOfStep(step + 1).pointers);
}

Result<StepMetrics> PlanTrainer::step() {
  int64_t begin = begun > done ? endOfLast : nowNanoseconds();
  if (begun == done) CLEAVE_RETURN_IF_ERROR(beginStep(done));
  // The host must know how many steps were skipped before it gives the next one its scalars.
  if (runsIntoNext(done) && !countsSkipped) CLEAVE_RETURN_IF_ERROR(beginStep(done + 1));
  CLEAVE_RETURN_IF_ERROR(fetchAhead());
  Result<std::map<std::string, double>> outputs = engine->finish();
  if (!outputs) return outputs.status();
  endOfLast = nowNanoseconds();
  StepMetrics metrics;
  metrics.learningRate = learningRate(training.lr(), done);
  metrics.step = ++done;
  metrics.stepSeconds = static_cast<double>(endOfLast - begin) / 1e9;
  if (outputs->count("loss")) metrics.loss = outputs->at("loss");
  if (outputs->count("grad_norm")) metrics.gradNorm = outputs->at("grad_norm");
  if (outputs->count("loss_scale")) metrics.lossScale = outputs->at("loss_scale");
  if (outputs->count("skipped")) metrics.skipped = skipped = std::llround(outputs->at("skipped"));
  metrics.samplesPerSecond = static_cast<double>(training.global_batch()) / metrics.stepSeconds;
  metrics.tokensPerSecond = metrics.samplesPerSecond * static_cast<double>(training.tokens_per_sample());
  metrics.tflopsPerDevice =
      training.flops_per_step() / metrics.stepSeconds / static_cast<double>(engine->mesh().numDevices()) / 1e12;
  metrics.peakBytesPerDevice = engine->peakBytes();
  metrics.hostBytesPerDevice = engine->hostBytes();
  if (isEvaluationDue(done)) {
    Result<double> loss = evaluate();
    if (!loss) return loss.status();
    if (!std::isnan(*loss)) metrics.evalLoss = *loss;
  }
  return metrics;
}

Status runAll(PlanTrainer &trainer, const TrainOptions &options) {
  bool first = trainer.isFirstProcess();
  MetricsFile metrics;
  if (first && !options.metrics.empty()) CLEAVE_RETURN_IF_ERROR(metrics.open(options.metrics, trainer.stepsDone()));
  if (trainer.totalSteps() <= 0) return inputError("no number of steps: give --steps N");
  trainer.runToTheEnd();
  while (trainer.stepsDone() < trainer.totalSteps()) {
    Result<StepMetrics> step = trainer.step();
    if (!step) return step.status();
    if (first) {
      CLEAVE_RETURN_IF_ERROR(metrics.write(step->json()));
      if (options.onStep) options.onStep(*step);
    }
    if (trainer.isSnapshotDue(step->step)) CLEAVE_RETURN_IF_ERROR(trainer.snapshot());
  }
  // Of several processes, each writes its own devices': all but the first beside the file that was asked for.
  std::string own = first ? "" : fmt::format(".rank-{}", trainer.executor().devices().front());
  if (!options.trace.empty()) CLEAVE_RETURN_IF_ERROR(trainer.executor().writeTrace(options.trace + own));
  if (!options.counters.empty())
    CLEAVE_RETURN_IF_ERROR(
        writeFileAtomically(trafficJson(trainer.executor(), trainer.stepsRun()), options.counters + own));
  return Status::ok();
}

} // namespace

Result<std::unique_ptr<Trainer>> Trainer::create(const plan::Plan &plan, TrainOptions options) {
  auto trainer = std::make_unique<PlanTrainer>(plan, std::move(options));
  CLEAVE_RETURN_IF_ERROR(trainer->open());
  return std::unique_ptr<Trainer>(std::move(trainer));
}

Status train(const plan::Plan &plan, const TrainOptions &options) {
  PlanTrainer trainer(plan, options);
  Status status = trainer.open();
  if (status) status = runAll(trainer, options);
  if (!status) trainer.giveUp(status);
  return status;
}

} // namespace cleave::runtime
