#include "runtime/train/step_data.h"
#include "runtime/base/checksum.h"
#include "runtime/base/digest.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/sequence_lengths.h"
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
                          openData(training.data_yaml(), fields.back(), {options.path.value_or(""), training.seed(), options.evaluatesAll}));
  if (options.evaluatesAll && !opened.evaluation) evaluated = &DataSource::train;
  for (size_t length = 0; length + 1 < fields.size(); ++length) {
    DataSource &shorter = data.emplace_back();
    shorter.train = opened.train->atLength(fields[length]);
    if (opened.evaluation) shorter.evaluation = opened.evaluation->atLength(fields[length]);
    if (!shorter.train) return inputError("samples of several lengths: data of this kind has one length only");
  }
  data.push_back(std::move(opened));
  if (train()->size() < 1) return inputError("the training data has no sample");
  if (training.global_batch() < 1) return inputError("the plan does not say how many samples a step has");
  if (!options.evaluatesAll) CLEAVE_RETURN_IF_ERROR(checkHeldOut(rules, data.back()));
  SamplerOptions order{.batch = training.global_batch(),
                       .seed = training.seed(),
                       .shuffle = train()->shuffle(),
                       .dropLast = data.back().lastBatch == "drop",
                       .shares = train()->shares()};
  if (lengthsOf(source) > 1) order.groupOf = [this](int64_t sample) { return fitting(train()->lengthOf(sample)); };
  sampler = std::make_unique<Sampler>(train()->size(), std::move(order));
  return Status::ok();
}

Result<StepData::Feeds> StepData::makeFeeds(const std::string &routine) const {
  Feeds feeds;
  feeds.microbatches = microbatchesOf(source, routine);
  for (size_t length = 0; length < lengthsOf(source); ++length) {
    CLEAVE_ASSIGN_OR_RETURN(std::vector<Feed> inputs, makeInputs(routineOf(source, routine, length), fields[length]));
    feeds.lengths.push_back(std::move(inputs));
  }
  feeds.length = feeds.lengths.size() - 1;
  for (size_t length = 0; length < feeds.length; ++length)
    if (microbatchesOf(source, routineOf(source, routine, length)) != feeds.microbatches ||
        !std::ranges::equal(feeds.lengths[length], feeds.inputs(), {}, &Feed::samples, &Feed::samples))
      return inputError(
          fmt::format("routine '{}' has other samples than '{}'", routineOf(source, routine, length), routine));
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
int64_t StepData::boundBytes(const Feed &feed) const {
  const int64_t samples = local && !feed.withoutSamples ? local->count : feed.samples;
  return feed.stepBytes(stepFeeds.front().microbatches) / feed.samples * samples;
}

Status StepData::checkBound(const std::string &input, const std::vector<int64_t> &wanted, int64_t bytes) const {
  if (std::ranges::count(wanted, bytes)) return Status::ok();
  return inputError(fmt::format("input '{}' needs {} bytes ({} of a step), {} are given", input,
                                fmt::join(wanted, " or "), local ? "this process' part" : "the global batch", bytes));
}

Status StepData::bind(const std::string &input, const void *array, int64_t bytes) {
  std::vector<int64_t> wanted; // bytes, by length
  for (size_t length = 0; length < lengthsOf(source); ++length)
    for (const Feed &feed : stepFeeds.front().lengths[length])
      if (fields[length][feed.field].name == input) wanted.push_back(boundBytes(feed));
  if (wanted.empty()) return inputError(fmt::format("the plan has no input '{}'", input));
  CLEAVE_RETURN_IF_ERROR(checkBound(input, wanted, bytes));
  for (Feeds &feeds : stepFeeds) {
    for (std::future<Status> &part : feeds.reading) part.wait();
    for (size_t length = 0; length < feeds.lengths.size(); ++length)
      for (Feed &feed : feeds.lengths[length])
        if (fields[length][feed.field].name == input) {
          feed.bound = bytes == wanted[length] ? static_cast<const std::byte *>(array) : nullptr;
          feed.isBound = true;
          if (feed.bound && !feed.isCutFromBound(feeds.microbatches, givenOf(feed).count)) feed.bytes = {};
          if (feeds.lengths.size() > 1) feeds.isBegun = false; // the samples' length is chosen again
        }
  }
  return Status::ok();
}

std::map<std::string, std::string> StepData::boundDigests(int64_t step) {
  std::map<std::string, std::string> digests;
  const Feeds &feeds = feedsOf(step);
  for (const Feed &feed : feeds.inputs()) {
    if (!feed.bound) continue;
    const int64_t bytes = givenOf(feed).count * feed.sampleBytes * (feed.withoutSamples ? 1 : feeds.microbatches);
    digests[fields[feeds.length][feed.field].name] = checksumOf({feed.bound, static_cast<size_t>(bytes)});
  }
  return digests;
}

// The least length that so many positions fit in.
size_t StepData::fitting(int64_t positions) const {
  size_t length = 0;
  while (length + 1 < lengthsOf(source) && source.lengths(static_cast<int>(length)).length() < positions) ++length;
  return length;
}

// The least length that the samples and the caller's arrays have.
Status StepData::chooseLength(Feeds &feeds, const Dataset *from) const {
  feeds.positions = 0;
  int64_t longest = 0;
  for (int64_t sample : feeds.indices) {
    const int64_t positions = from ? from->lengthOf(sample) : 0;
    longest = std::max(longest, positions), feeds.positions += positions;
  }
  auto isGiven = [](const Feed &feed) { return !feed.isBound || feed.bound; };
  for (feeds.length = fitting(longest); feeds.length < feeds.lengths.size(); ++feeds.length)
    if (std::ranges::all_of(feeds.inputs(), isGiven)) return Status::ok();
  return inputError("the arrays of a step are of different lengths");
}

std::vector<int64_t> StepData::localSamples() const {
  std::vector<int64_t> samples;
  for (int64_t microbatch = 0; local && microbatch < stepFeeds.front().microbatches; ++microbatch)
    for (int64_t sample = 0; sample < local->count; ++sample)
      samples.push_back(microbatch * stepFeeds.front().samples() + local->begin + sample);
  return samples;
}

int64_t StepData::stepsOfEpoch() const {
  return sampler ? sampler->samplesPerEpoch() / std::max<int64_t>(1, source.training().global_batch()) : 0;
}

SamplerState StepData::before(int64_t step) {
  const Feeds &next = feedsOf(step);
  return !sampler ? SamplerState{} : next.step == step ? next.before : sampler->state();
}

Status StepData::restore(const SamplerState &state, int64_t step) {
  drawn = step;
  return sampler ? sampler->restore(state) : Status::ok();
}

// Takes the samples of a batch.
Status StepData::draw(Feeds &feeds, Sampler *order) {
  feeds.indices.clear();
  if (order) feeds.before = order->state(), feeds.firstTurn = order->turn();
  const std::vector<Field> &known = fields.back();
  for (int64_t microbatch = 0; microbatch < feeds.microbatches; ++microbatch) {
    std::span<const int64_t> indices;
    for (const Feed &feed : feeds.lengths.back()) {
      if (feed.isBound) continue;
      if (data.empty())
        return inputError(
            fmt::format("no data for input '{}': the recipe has no `data` and none is given", known[feed.field].name));
      if (feed.withoutSamples) continue;
      if (indices.empty()) indices = order->next(feed.samples); // every process takes them, whatever it reads
      if (static_cast<int64_t>(indices.size()) != feed.samples)
        return inputError(
            fmt::format("inputs of different batch sizes ('{}' has {})", known[feed.field].name, feed.samples));
    }
    feeds.indices.insert(feeds.indices.end(), indices.begin(), indices.end());
  }
  return Status::ok();
}

// Reads the samples; beside the step by threads, which endFill waits for.
Status StepData::beginFill(Feeds &feeds, Part part) {
  feeds.reading.clear();
  CLEAVE_RETURN_IF_ERROR(chooseLength(feeds, data.empty() ? nullptr : (data.back().*part).get()));
  if (data.empty()) return Status::ok();
  const Dataset *from = (data[feeds.length].*part).get();
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
  return from.fillTraining(field, indices, feeds.firstTurn + begin, out);
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

// The caller's values of one microbatch are checked, and cut out into `room` where they do not lie beside each other. Gives
// where the microbatch of all processes begins, of which the devices read what the caller gives.
Result<const std::byte *> StepData::takeBound(size_t length, const Feed &feed, int64_t microbatch,
                                              std::byte *room) const {
  const SampleRange given = givenOf(feed);
  const Field &field = fields[length][feed.field];
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
        CLEAVE_ASSIGN_OR_RETURN(values, takeBound(feeds.length, feed, microbatch, feed.bytes.data() + begin));
      }
      feeds.pointers[static_cast<size_t>(microbatch) * feeds.inputs().size() + i] = values;
    }
  return status;
}

Status StepData::begin(int64_t step) {
  Feeds &feeds = feedsOf(step);
  if (feeds.step != step) {
    feeds.isBegun = false;
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
    const Field &field = fields[feeds.length][feed.field];
    if (!feed.read || !isFloat(field.dtype)) continue;
    const int64_t unit = byteSize(field.dtype), piece = feed.sampleBytes / feed.outer;
    const SampleRange given = givenOf(feed);
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
  const std::string routine = routineOf(source, "evaluate", evaluateFeeds.length);
  CLEAVE_ASSIGN_OR_RETURN(auto outputs, engine.run(routine, evaluateFeeds.pointers, step));
  const int64_t samples = evaluateFeeds.samples() * evaluateFeeds.microbatches;
  const int64_t batch = std::max<int64_t>(1, source.training().global_batch());
  sums.add(outputs, engine.outputTensors(), static_cast<double>(samples) / static_cast<double>(batch), samples);
  return Status::ok();
}

Status StepData::evaluate(Executor &engine, int64_t step, int64_t batches, EvaluationSums &sums) {
  if (evaluateFeeds.lengths.empty()) return inputError("the plan has no routine 'evaluate'");
  if (!heldOut())
    return inputError("no samples are held out for an evaluation: give data.train_split below 1, or other data");
  // As many samples a batch as a step trains on, whatever the microbatches are.
  const int64_t samples = evaluateFeeds.samples() * evaluateFeeds.microbatches,
                runsOfBatch = std::max<int64_t>(1, source.training().global_batch() / std::max<int64_t>(1, samples));
  int64_t runs = std::max<int64_t>(1, heldOut()->size() / std::max<int64_t>(1, samples));
  if (batches > 0) runs = std::min(batches, std::max<int64_t>(1, runs / runsOfBatch)) * runsOfBatch;
  Sampler order(heldOut()->size(), {.batch = samples * runsOfBatch, .seed = source.training().seed(), .shuffle = false, .shares = heldOut()->shares()});
  for (int64_t run = 0; run < runs; ++run) {
    CLEAVE_RETURN_IF_ERROR(draw(evaluateFeeds, &order));
    CLEAVE_RETURN_IF_ERROR(beginFill(evaluateFeeds, evaluated));
    CLEAVE_RETURN_IF_ERROR(endFill(evaluateFeeds));
    CLEAVE_RETURN_IF_ERROR(runEvaluation(engine, step, sums));
  }
  return Status::ok();
}

Status StepData::bindEvaluation(const std::string &input, const void *array, int64_t bytes) {
  if (evaluateFeeds.lengths.empty()) return inputError("the plan has no routine 'evaluate'");
  std::vector<int64_t> wanted; // bytes of a global batch, by length
  for (size_t length = 0; length < lengthsOf(source); ++length)
    for (Feed &feed : evaluateFeeds.lengths[length]) {
      if (fields[length][feed.field].name != input) continue;
      wanted.push_back(boundBytes(feed));
      feed.bound = bytes == wanted.back() ? static_cast<const std::byte *>(array) : nullptr;
      feed.isBound = true;
    }
  if (wanted.empty()) return inputError(fmt::format("the evaluation has no input '{}'", input));
  return checkBound(input, wanted, bytes);
}

Status StepData::evaluateBound(Executor &engine, int64_t step, EvaluationSums &sums) {
  auto forget = [&](Status status) {
    for (std::vector<Feed> &inputs : evaluateFeeds.lengths)
      for (Feed &feed : inputs) feed.bound = nullptr, feed.isBound = false;
    return status;
  };
  for (const Feed &feed : evaluateFeeds.lengths.back())
    if (!feed.isBound)
      return forget(inputError(fmt::format("the evaluation needs input '{}', too", fields.back()[feed.field].name)));
  evaluateFeeds.indices.clear();
  if (Status status = chooseLength(evaluateFeeds, nullptr); !status) return forget(status);
  for (int64_t run = 0; run < stepFeeds.front().microbatches; ++run) {
    for (size_t i = 0; i < evaluateFeeds.inputs().size(); ++i) {
      Feed &feed = evaluateFeeds.inputs()[i];
      if (!feed.read) continue;
      Result<const std::byte *> values = takeBound(evaluateFeeds.length, feed, run, feed.bytes.data());
      if (!values) return forget(values.status());
      evaluateFeeds.pointers[i] = *values;
    }
    if (Status status = runEvaluation(engine, step, sums); !status) return forget(status);
  }
  return forget(Status::ok());
}

} // namespace cleave::runtime
