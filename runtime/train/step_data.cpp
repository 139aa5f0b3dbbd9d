#include "runtime/train/step_data.h"
#include "runtime/base/checksum.h"
#include "runtime/base/digest.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/step_shapes.h"
#include "runtime/train/data/lengths.h"
#include "runtime/train/data/mixing.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <thread>
#include <yaml-cpp/yaml.h>

namespace cleave::runtime {

Status checkHeldOut(const EvaluationRules &rules, const DataSource &data) {
  if (rules.every == 0 || data.evaluation) return Status::ok();
  return inputError("the recipe has `eval`, and no samples are held out for it: give data.train_split below 1, or "
                    "leave `eval` out");
}

int64_t StepData::Feeds::samples() const {
  auto found = std::ranges::find(inputs(), false, &Feed::withoutSamples);
  return found == inputs().end() ? 1 : found->samples;
}

Status StepData::open(const StepDataOptions &options) {
  CLEAVE_ASSIGN_OR_RETURN(fields, fieldsOf(source));
  CLEAVE_ASSIGN_OR_RETURN(rules, readEvaluationRules(source.training()));
  CLEAVE_RETURN_IF_ERROR(openDataset(options));
  const size_t running = stepsOverlap(source) ? 3 : executor.prefetchesInputs() ? 2 : 1;
  for (const size_t count = running + (train() && isReadBeside(*train())); stepFeeds.size() < count;) {
    CLEAVE_ASSIGN_OR_RETURN(Feeds made, makeFeeds("step"));
    stepFeeds.push_back(std::move(made));
  }
  if (!executor.has("evaluate")) return Status::ok();
  CLEAVE_ASSIGN_OR_RETURN(evaluateFeeds, makeFeeds("evaluate"));
  return Status::ok();
}

std::string StepData::digest() const {
  constexpr int64_t looked = 16;
  if (!train()) return "";
  const int64_t samples = train()->size();
  Digest digest;
  digest.add(std::to_string(samples));
  std::vector<std::byte> bytes;
  for (size_t field = 0; field < train()->fields().size(); ++field)
    for (int64_t i = 0; i < std::min(looked, samples); ++i) {
      const Field &of = train()->fields()[field];
      const int64_t sample =
          of.withoutSamples ? 0 : i * (samples - 1) / std::max<int64_t>(1, std::min(looked, samples) - 1);
      bytes.assign(static_cast<size_t>(of.bytes()), std::byte{});
      const Status read = train()->fill(field, {&sample, 1}, bytes.data());
      digest.add(read ? std::string_view(reinterpret_cast<const char *>(bytes.data()), bytes.size()) : read.message());
    }
  return hexOf(digest.finish().substr(0, 8));
}

Status StepData::openDataset(const StepDataOptions &options) {
  const plan::Training &training = source.training();
  if (training.data_yaml().empty() && !options.path) return Status::ok(); // the caller binds arrays
  CLEAVE_ASSIGN_OR_RETURN(DataSource opened,
                          openData(training.data_yaml(), fields.back(),
                                   {options.path.value_or(""), training.seed(), options.evaluatesAll}));
  if (options.evaluatesAll && !opened.evaluation) evaluated = &DataSource::train;
  for (size_t shape = 0; shape + 1 < fields.size(); ++shape) {
    DataSource &shorter = data.emplace_back();
    if (isRamp(source)) {
      CLEAVE_ASSIGN_OR_RETURN(shorter.train, leadingPart(*opened.train, fields[shape]));
      continue;
    }
    shorter.train = opened.train->atLength(fields[shape]);
    if (opened.evaluation) shorter.evaluation = opened.evaluation->atLength(fields[shape]);
    if (!shorter.train) return inputError("samples of several lengths: data of this kind has one length only");
  }
  data.push_back(std::move(opened));
  if (train()->size() < 1) return inputError("the training data has no sample");
  if (training.global_batch() < 1) return inputError("the plan does not say how many samples a step has");
  if (!options.evaluatesAll) CLEAVE_RETURN_IF_ERROR(checkHeldOut(rules, data.back()));
  if (data.back().lastBatch == "smaller")
    for (const Field &field : fields.back())
      if (field.label && field.ignored.size() != 1)
        return inputError(
            fmt::format("data.last_batch: smaller needs one label of '{}' that its losses ignore", field.name));
  SamplerOptions order{.batch = training.global_batch(),
                       .seed = training.seed(),
                       .shuffle = train()->shuffle(),
                       .dropLast = data.back().lastBatch == "drop",
                       .lastIsSmaller = data.back().lastBatch == "smaller",
                       .shares = train()->shares()};
  if (shapesOf(source) > 1 && !isRamp(source))
    order.groupOf = [this](int64_t sample) { return fitting(train()->lengthOf(sample)); };
  sampler = std::make_unique<Sampler>(train()->size(), std::move(order));
  return Status::ok();
}

Result<StepData::Feeds> StepData::makeFeeds(const std::string &routine) const {
  Feeds feeds;
  feeds.microbatches = microbatchesOf(source, routine);
  for (size_t shape = 0; shape < shapesOf(source); ++shape) {
    CLEAVE_ASSIGN_OR_RETURN(std::vector<Feed> inputs, makeInputs(routineOf(source, routine, shape), fields[shape]));
    feeds.shapes.push_back(std::move(inputs));
  }
  feeds.shape = feeds.shapes.size() - 1;
  for (size_t shape = 0; shape < feeds.shape; ++shape)
    if (microbatchesOf(source, routineOf(source, routine, shape)) != feeds.microbatches ||
        feeds.shapes[shape].size() != feeds.inputs().size() ||
        (!isRamp(source) &&
         !std::ranges::equal(feeds.shapes[shape], feeds.inputs(), {}, &Feed::samples, &Feed::samples)))
      return inputError(
          fmt::format("routine '{}' has other samples than '{}'", routineOf(source, routine, shape), routine));
  feeds.pointers.resize(feeds.inputs().size() * static_cast<size_t>(feeds.microbatches));
  return feeds;
}

Result<std::vector<StepData::Feed>> StepData::makeInputs(const std::string &routine,
                                                         const std::vector<Field> &of) const {
  std::vector<Feed> inputs;
  for (const plan::InputBinding *input : inputsOf(source, routine)) {
    Feed feed;
    while (feed.field < of.size() && of[feed.field].name != input->name()) ++feed.field;
    if (feed.field == of.size())
      return inputError(fmt::format("routine '{}' reads '{}', which 'step' does not", routine, input->name()));
    feed.withoutSamples = input->without_samples();
    feed.samples = feed.withoutSamples ? 1 : input->global_shape(static_cast<int>(input->sample_dim()));
    for (int64_t dim = 0; !feed.withoutSamples && dim < input->sample_dim(); ++dim)
      feed.outer *= input->global_shape(static_cast<int>(dim));
    feed.sampleBytes = of[feed.field].bytes();
    feed.read = executor.reads(routine, input->name());
    if (feed.read) feed.bytes.resize(static_cast<size_t>(feed.stepBytes(microbatchesOf(source, routine))));
    inputs.push_back(std::move(feed));
  }
  return inputs;
}

// Of a caller's array.
int64_t StepData::boundBytes(size_t shape, const Feed &feed) const {
  const int64_t samples = !local.empty() && !feed.withoutSamples ? local[shape].count : feed.samples;
  return feed.stepBytes(stepFeeds.front().microbatches) / feed.samples * samples;
}

Status StepData::checkBound(const std::string &input, const std::vector<int64_t> &wanted, int64_t bytes) const {
  if (std::ranges::count(wanted, bytes)) return Status::ok();
  return inputError(fmt::format("input '{}' needs {} bytes ({} of a step), {} are given", input,
                                fmt::join(wanted, " or "), local.empty() ? "the global batch" : "this process' part",
                                bytes));
}

Status StepData::bind(const std::string &input, const void *array, int64_t bytes) {
  std::vector<int64_t> wanted; // bytes, by shape
  for (size_t shape = 0; shape < shapesOf(source); ++shape)
    for (const Feed &feed : stepFeeds.front().shapes[shape])
      if (fields[shape][feed.field].name == input) wanted.push_back(boundBytes(shape, feed));
  if (wanted.empty()) return inputError(fmt::format("the plan has no input '{}'", input));
  CLEAVE_RETURN_IF_ERROR(checkBound(input, wanted, bytes));
  for (Feeds &feeds : stepFeeds) {
    for (std::future<Status> &part : feeds.reading) part.wait();
    for (size_t shape = 0; shape < feeds.shapes.size(); ++shape)
      for (Feed &feed : feeds.shapes[shape])
        if (fields[shape][feed.field].name == input) {
          feed.bound = bytes == wanted[shape] ? static_cast<const std::byte *>(array) : nullptr;
          feed.isBound = true;
          if (feed.bound && !feed.isCutFromBound(feeds.microbatches, givenOf(shape, feed).count)) feed.bytes = {};
          if (feeds.shapes.size() > 1) feeds.isBegun = false; // the samples' length is chosen again
        }
  }
  return Status::ok();
}

std::map<std::string, std::string> StepData::boundDigests(int64_t step) {
  std::map<std::string, std::string> digests;
  const Feeds &feeds = feedsOf(step);
  for (const Feed &feed : feeds.inputs()) {
    if (!feed.bound) continue;
    const int64_t bytes =
        givenOf(feeds.shape, feed).count * feed.sampleBytes * (feed.withoutSamples ? 1 : feeds.microbatches);
    digests[fields[feeds.shape][feed.field].name] = checksumOf({feed.bound, static_cast<size_t>(bytes)});
  }
  return digests;
}

// The least length that so many positions fit in.
size_t StepData::fitting(int64_t positions) const {
  size_t shape = 0;
  while (shape + 1 < shapesOf(source) && source.shapes(static_cast<int>(shape)).length() < positions) ++shape;
  return shape;
}

const Dataset *StepData::dataOf(size_t shape, Part part) const {
  if (data.empty()) return nullptr;
  const auto &own = data[shape].*part;
  return own ? own.get() : (data.back().*part).get();
}

// The least length that the samples and the caller's arrays have. Of a ramp the shape is that of the step.
Status StepData::chooseShape(Feeds &feeds, Part part) const {
  auto isGiven = [](const Feed &feed) { return !feed.isBound || feed.bound; };
  feeds.positions = 0;
  if (isRamp(source))
    return std::ranges::all_of(feeds.inputs(), isGiven)
               ? Status::ok()
               : inputError(fmt::format("the arrays are not of the recipe's ramp: here it has {} samples a step",
                                        batchOf(source, feeds.shape)));
  const Dataset *from = data.empty() ? nullptr : (data.back().*part).get();
  int64_t longest = 0;
  const size_t counted = from ? std::min(feeds.indices.size(), static_cast<size_t>(feeds.counted)) : 0;
  for (int64_t sample : std::span(feeds.indices).first(counted)) {
    const int64_t positions = from->lengthOf(sample);
    longest = std::max(longest, positions), feeds.positions += positions;
  }
  for (feeds.shape = fitting(longest); feeds.shape < feeds.shapes.size(); ++feeds.shape)
    if (std::ranges::all_of(feeds.inputs(), isGiven)) return Status::ok();
  return inputError("the arrays of a step are of different lengths");
}

std::vector<int64_t> StepData::localSamples(size_t shape) const {
  std::vector<int64_t> samples;
  if (local.empty()) return samples;
  const int64_t microbatches = stepFeeds.front().microbatches, all = batchOf(source, shape) / microbatches;
  for (int64_t microbatch = 0; microbatch < microbatches; ++microbatch)
    for (int64_t sample = 0; sample < local[shape].count; ++sample)
      samples.push_back(microbatch * all + local[shape].begin + sample);
  return samples;
}

int64_t StepData::stepsOfEpoch() {
  if (!sampler) return 0;
  int64_t steps = 0, left = train()->size();
  for (size_t shape = rampedShape(source, 0); left > 0 && shape < shapesOf(source); ++shape) {
    sampler->setBatch(batchOf(source, shape));
    const bool isLast = shape + 1 == shapesOf(source);
    const int64_t stage = isLast ? left : source.shapes(static_cast<int>(shape)).until() - steps;
    const int64_t fitting = sampler->stepsOf(left, stage);
    steps += fitting, left -= fitting * batchOf(source, shape);
    if (fitting < stage) break; // the rest fills no batch
  }
  return std::max<int64_t>(1, steps);
}

int64_t StepData::repeatedSamples() {
  if (!sampler) return 0;
  sampler->setBatch(source.training().global_batch());
  return sampler->repeatedSamples();
}

SamplerState StepData::before(int64_t step) {
  const Feeds &next = feedsOf(step);
  return !sampler ? SamplerState{} : next.step == step ? next.before : sampler->state();
}

Status StepData::restore(const SamplerState &state, int64_t step) {
  drawn = step;
  return sampler ? sampler->restore(state) : Status::ok();
}

// Takes the samples of a batch of the shape that is set.
Status StepData::draw(Feeds &feeds, Sampler *order) {
  feeds.indices.clear(), feeds.counted = 0;
  if (order) feeds.before = order->state(), feeds.firstTurn = order->turn();
  const std::vector<Field> &known = fields.back();
  const int64_t places = feeds.samples() * feeds.microbatches; // a training batch may have fewer samples
  const int64_t batch = order == sampler.get() ? std::min(places, batchOf(source, feeds.shape)) : places;
  for (int64_t microbatch = 0; microbatch < feeds.microbatches; ++microbatch) {
    std::span<const int64_t> indices;
    for (const Feed &feed : feeds.inputs()) {
      if (feed.isBound) continue;
      if (data.empty())
        return inputError(
            fmt::format("no data for input '{}': the recipe has no `data` and none is given", known[feed.field].name));
      if (feed.withoutSamples) continue;
      const int64_t wanted = std::clamp<int64_t>(batch - microbatch * feed.samples, 0, feed.samples);
      if (indices.empty()) indices = order->next(feed.samples, wanted); // every process takes them, whatever it reads
      if (static_cast<int64_t>(indices.size()) != feed.samples)
        return inputError(
            fmt::format("inputs of different batch sizes ('{}' has {})", known[feed.field].name, feed.samples));
    }
    feeds.indices.insert(feeds.indices.end(), indices.begin(), indices.end());
    feeds.counted += indices.empty() ? batchOf(source, feeds.shape) / feeds.microbatches : order->counted();
  }
  return Status::ok();
}

// Reads the samples; beside the step by threads, which endFill waits for.
Status StepData::beginFill(Feeds &feeds, Part part) {
  feeds.reading.clear();
  CLEAVE_RETURN_IF_ERROR(chooseShape(feeds, part));
  const Dataset *from = dataOf(feeds.shape, part);
  if (!from) return Status::ok();
  const bool trains = part != evaluated;
  if (!isReadBeside(*from)) return read(feeds, *from, trains, 0, 1);
  // Half of the cores: the others are the step's, or other processes'.
  const int64_t parts = std::clamp<int64_t>(std::thread::hardware_concurrency() / 2, 1, 8);
  for (int64_t number = 0; number < parts; ++number)
    feeds.reading.push_back(std::async(std::launch::async, [this, &feeds, from, trains, number, parts] {
      return read(feeds, *from, trains, number, parts);
    }));
  return Status::ok();
}

// The samples [begin, begin + count) of the batch.
Status StepData::fillSamples(const Feeds &feeds, const Dataset &from, bool trains, size_t field, size_t begin,
                             size_t count, std::byte *out) const {
  const std::span<const int64_t> indices = std::span(feeds.indices).subspan(begin, count);
  if (!trains) return from.fill(field, indices, out);
  if (const auto &mixing = data.back().mixing)
    return mixing->fill(from, field, feeds.indices, feeds.firstTurn, begin, count, out);
  CLEAVE_RETURN_IF_ERROR(from.fillTraining(field, indices, feeds.firstTurn + begin, out));
  const Field &of = from.fields()[field];
  const auto counted = static_cast<size_t>(feeds.counted);
  if (!of.label || begin + count <= counted) return Status::ok();
  const int64_t unit = byteSize(of.dtype),
                first = static_cast<int64_t>(std::max(begin, counted) - begin) * of.elements();
  for (int64_t i = first; i < static_cast<int64_t>(count) * of.elements(); ++i)
    storeNumber(of.dtype, static_cast<double>(of.ignored.front()), out + i * unit);
  return Status::ok();
}

// The samples of one part of each microbatch, into the inputs that this process reads.
Status StepData::read(Feeds &feeds, const Dataset &from, bool trains, int64_t part, int64_t parts) {
  const int64_t samples = static_cast<int64_t>(feeds.indices.size()) / feeds.microbatches;
  const int64_t begin = samples * part / parts, count = samples * (part + 1) / parts - begin;
  for (int64_t microbatch = 0; microbatch < feeds.microbatches; ++microbatch)
    for (Feed &feed : feeds.inputs()) {
      if (feed.bound || !feed.read) continue;
      if (feed.withoutSamples) {
        constexpr int64_t one = 0;
        if (part == 0 && microbatch == 0)
          CLEAVE_RETURN_IF_ERROR(from.fill(feed.field, std::span(&one, 1), feed.bytes.data()));
        continue;
      }
      auto fill = [&](std::byte *to) {
        return fillSamples(feeds, from, trains, feed.field, static_cast<size_t>(microbatch * samples + begin),
                           static_cast<size_t>(count), to);
      };
      std::byte *out = feed.bytes.data() + microbatch * feed.microbatchBytes();
      if (feed.outer == 1) {
        CLEAVE_RETURN_IF_ERROR(fill(out + begin * feed.sampleBytes));
        continue;
      }
      std::vector<std::byte> rows(static_cast<size_t>(count * feed.sampleBytes));
      CLEAVE_RETURN_IF_ERROR(fill(rows.data()));
      const int64_t piece = feed.sampleBytes / feed.outer;
      for (int64_t sample = 0; sample < count; ++sample)
        for (int64_t o = 0; o < feed.outer; ++o)
          std::copy_n(rows.data() + (sample * feed.outer + o) * piece, piece,
                      out + (o * feed.samples + begin + sample) * piece);
    }
  return Status::ok();
}

// The caller's values of one microbatch are checked, and cut out into `room` where they do not lie beside each other.
// Gives where the microbatch of all processes begins, of which the devices read what the caller gives.
Result<const std::byte *> StepData::takeBound(size_t shape, const Feed &feed, int64_t microbatch,
                                              std::byte *room) const {
  const SampleRange given = givenOf(shape, feed);
  const Field &field = fields[shape][feed.field];
  const int64_t microbatches = stepFeeds.front().microbatches;
  const int64_t bytes = given.count * feed.sampleBytes, piece = feed.sampleBytes / feed.outer;
  if (feed.isCutFromBound(microbatches, given.count)) {
    const int64_t width = given.count * piece;
    for (int64_t o = 0; o < feed.outer; ++o) {
      std::byte *to = room + (o * feed.samples + given.begin) * piece;
      std::copy_n(feed.bound + (o * microbatches + microbatch) * width, width, to);
      CLEAVE_RETURN_IF_ERROR(checkRange(field, {to, static_cast<size_t>(width)}, "", -1));
    }
    return room;
  }
  const std::byte *values = feed.bound + (feed.withoutSamples ? 0 : microbatch * bytes);
  CLEAVE_RETURN_IF_ERROR(checkRange(field, {values, static_cast<size_t>(bytes)}, "",
                                    feed.outer > 1 ? -1 : microbatch * feed.samples + given.begin));
  return values - given.begin * feed.sampleBytes;
}

Status StepData::endFill(Feeds &feeds) {
  Status status;
  for (std::future<Status> &part : feeds.reading)
    if (Status read = part.get(); status) status = read;
  feeds.reading.clear();
  for (int64_t microbatch = 0; microbatch < feeds.microbatches; ++microbatch)
    for (size_t i = 0; i < feeds.inputs().size(); ++i) {
      Feed &feed = feeds.inputs()[i];
      if (!feed.read) continue;
      const int64_t begin = feed.withoutSamples || feed.bytes.empty() ? 0 : microbatch * feed.microbatchBytes();
      const std::byte *values = feed.bytes.data() + begin;
      if (feed.bound) {
        CLEAVE_ASSIGN_OR_RETURN(values, takeBound(feeds.shape, feed, microbatch, feed.bytes.data() + begin));
      }
      feeds.pointers[static_cast<size_t>(microbatch) * feeds.inputs().size() + i] = values;
    }
  return status;
}

Status StepData::begin(int64_t step) {
  Feeds &feeds = feedsOf(step);
  if (feeds.step != step) {
    feeds.isBegun = false;
    feeds.shape = rampedShape(source, step);
    if (sampler) sampler->setBatch(batchOf(source, feeds.shape));
    if (Status status = draw(feeds, sampler.get()); !status) {
      feeds.step = -1; // it has no step's samples
      if (sampler) CLEAVE_RETURN_IF_ERROR(sampler->restore(feeds.before));
      return status;
    }
    feeds.step = step, drawn = step + 1;
  }
  if (feeds.isBegun) return Status::ok();
  CLEAVE_RETURN_IF_ERROR(beginFill(feeds, &DataSource::train));
  feeds.isBegun = true;
  return Status::ok();
}

// On GPUs the host's cores have nothing else to do.
bool StepData::isReadBeside(const Dataset &from) const { return from.isSlow() || source.has_cuda(); }

Status StepData::ready(int64_t step) {
  Status status = begin(step);
  if (status) status = endFill(feedsOf(step));
  if (status) return status;
  feedsOf(step).isBegun = false;
  return {static_cast<ErrorKind>(status.exitStatus()), fmt::format("step {}: {}", step + 1, status.message())};
}

std::string StepData::notFinite(int64_t step) {
  const Feeds &feeds = feedsOf(step);
  if (feeds.step != step) return "";
  for (size_t i = 0; i < feeds.inputs().size(); ++i) {
    const Feed &feed = feeds.inputs()[i];
    const Field &field = fields[feeds.shape][feed.field];
    if (!feed.read || !isFloat(field.dtype)) continue;
    const int64_t unit = byteSize(field.dtype), piece = feed.sampleBytes / feed.outer;
    const SampleRange given = givenOf(feeds.shape, feed);
    for (int64_t microbatch = 0; microbatch < (feed.withoutSamples ? 1 : feeds.microbatches); ++microbatch) {
      const std::byte *values = feeds.pointers[static_cast<size_t>(microbatch) * feeds.inputs().size() + i];
      for (int64_t at = 0; at < feed.microbatchBytes(); at += unit) {
        const int64_t sample = feed.withoutSamples ? 0 : at / piece % feed.samples;
        if (sample < given.begin || sample >= given.begin + given.count) continue;
        const double value = loadFloat(field.dtype, values + at);
        if (std::isfinite(value)) continue;
        if (feed.withoutSamples) return fmt::format("input '{}' has {}", field.name, value);
        const int64_t row = microbatch * feed.samples + sample;
        return feed.isBound ? fmt::format("input '{}' has {} in sample {} of the batch", field.name, value, row)
                            : fmt::format("input '{}' has {} in sample {} of the data", field.name, value,
                                          feeds.indices[static_cast<size_t>(row)]);
      }
    }
  }
  return "";
}

void StepData::readAhead(int64_t end) {
  if (train() && isReadBeside(*train()) && drawn < end) (void)begin(drawn);
}

Status StepData::runEvaluation(Executor &engine, int64_t step, EvaluationSums &sums) {
  const std::string routine = routineOf(source, "evaluate", evaluateFeeds.shape);
  CLEAVE_ASSIGN_OR_RETURN(auto outputs, engine.run(routine, evaluateFeeds.pointers, step));
  const int64_t samples = evaluateFeeds.samples() * evaluateFeeds.microbatches;
  const int64_t batch = std::max<int64_t>(1, source.training().global_batch());
  sums.add(outputs, engine.outputTensors(), static_cast<double>(samples) / static_cast<double>(batch), samples);
  return Status::ok();
}

Status StepData::evaluate(Executor &engine, int64_t step, int64_t batches, EvaluationSums &sums) {
  if (evaluateFeeds.shapes.empty()) return inputError("the plan has no routine 'evaluate'");
  if (!heldOut())
    return inputError("no samples are held out for an evaluation: give data.train_split below 1, or other data");
  // As many samples a batch as a step trains on, whatever the microbatches are.
  const int64_t samples = evaluateFeeds.samples() * evaluateFeeds.microbatches,
                runsOfBatch = std::max<int64_t>(1, source.training().global_batch() / std::max<int64_t>(1, samples));
  int64_t runs = std::max<int64_t>(1, heldOut()->size() / std::max<int64_t>(1, samples));
  if (batches > 0) runs = std::min(batches, std::max<int64_t>(1, runs / runsOfBatch)) * runsOfBatch;
  Sampler order(heldOut()->size(), {.batch = samples * runsOfBatch,
                                    .seed = source.training().seed(),
                                    .shuffle = false,
                                    .shares = heldOut()->shares()});
  for (int64_t run = 0; run < runs; ++run) {
    CLEAVE_RETURN_IF_ERROR(draw(evaluateFeeds, &order));
    CLEAVE_RETURN_IF_ERROR(beginFill(evaluateFeeds, evaluated));
    CLEAVE_RETURN_IF_ERROR(endFill(evaluateFeeds));
    CLEAVE_RETURN_IF_ERROR(runEvaluation(engine, step, sums));
  }
  return Status::ok();
}

Status StepData::bindEvaluation(const std::string &input, const void *array, int64_t bytes) {
  if (evaluateFeeds.shapes.empty()) return inputError("the plan has no routine 'evaluate'");
  std::vector<int64_t> wanted; // bytes of a global batch, by shape
  for (size_t shape = isRamp(source) ? shapesOf(source) - 1 : 0; shape < shapesOf(source); ++shape)
    for (Feed &feed : evaluateFeeds.shapes[shape]) {
      if (fields[shape][feed.field].name != input) continue;
      wanted.push_back(boundBytes(shape, feed));
      feed.bound = bytes == wanted.back() ? static_cast<const std::byte *>(array) : nullptr;
      feed.isBound = true;
    }
  if (wanted.empty()) return inputError(fmt::format("the evaluation has no input '{}'", input));
  return checkBound(input, wanted, bytes);
}

Status StepData::evaluateBound(Executor &engine, int64_t step, EvaluationSums &sums) {
  auto forget = [&](Status status) {
    for (std::vector<Feed> &inputs : evaluateFeeds.shapes)
      for (Feed &feed : inputs) feed.bound = nullptr, feed.isBound = false;
    return status;
  };
  for (const Feed &feed : evaluateFeeds.shapes.back())
    if (!feed.isBound)
      return forget(inputError(fmt::format("the evaluation needs input '{}', too", fields.back()[feed.field].name)));
  evaluateFeeds.indices.clear();
  if (Status status = chooseShape(evaluateFeeds, evaluated); !status) return forget(status);
  for (int64_t run = 0; run < stepFeeds.front().microbatches; ++run) {
    for (size_t i = 0; i < evaluateFeeds.inputs().size(); ++i) {
      Feed &feed = evaluateFeeds.inputs()[i];
      if (!feed.read) continue;
      Result<const std::byte *> values = takeBound(evaluateFeeds.shape, feed, run, feed.bytes.data());
      if (!values) return forget(values.status());
      evaluateFeeds.pointers[i] = *values;
    }
    if (Status status = runEvaluation(engine, step, sums); !status) return forget(status);
  }
  return forget(Status::ok());
}

} // namespace cleave::runtime
