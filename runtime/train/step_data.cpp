#include "runtime/train/step_data.h"
#include "runtime/base/digest.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/sequence_lengths.h"
#include "runtime/train/data/lengths.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <thread>
#include <yaml-cpp/yaml.h>

namespace cleave::runtime {

Result<EvaluationPeriod> evaluationOf(const plan::Training &training, const DataSource &data) {
  EvaluationPeriod period;
  try {
    const YAML::Node eval = YAML::Load(training.eval_yaml());
    if (!eval.IsMap()) return period;
    period = {eval["every"].as<int64_t>(0), eval["batches"].as<int64_t>(10)};
  } catch (const YAML::Exception &error) {
    return inputError(fmt::format("the plan's eval map is not valid: {}", error.what()));
  }
  if (period.every > 0 && !data.evaluation)
    return inputError("the recipe has `eval`, and no samples are held out for it: give data.train_split below 1, or "
                      "leave `eval` out");
  return period;
}

int64_t StepData::Feeds::samples() const {
  auto found = std::ranges::find(inputs(), false, &Feed::withoutSamples);
  return found == inputs().end() ? 1 : found->samples;
}

Status StepData::open(const std::optional<std::string> &path) {
  CLEAVE_ASSIGN_OR_RETURN(fields, fieldsOf(source));
  CLEAVE_RETURN_IF_ERROR(openDataset(path));
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

Status StepData::openDataset(const std::optional<std::string> &path) {
  const plan::Training &training = source.training();
  try {
    if (training.data_yaml().empty() && !path) return Status::ok(); // the caller binds arrays
    CLEAVE_ASSIGN_OR_RETURN(DataSource opened,
                            openData(training.data_yaml(), fields.back(), {path.value_or(""), training.seed()}));
    for (size_t length = 0; length + 1 < fields.size(); ++length) {
      DataSource &shorter = data.emplace_back();
      shorter.train = opened.train->atLength(fields[length]);
      if (opened.evaluation) shorter.evaluation = opened.evaluation->atLength(fields[length]);
      if (!shorter.train) return inputError("samples of several lengths: data of this kind has one length only");
    }
    data.push_back(std::move(opened));
    YAML::Node map = YAML::Load(training.data_yaml());
    bool dropLast = map.IsMap() && map["drop_last"].as<bool>(false);
    if (train()->size() < 1) return inputError("the training data has no sample");
    if (training.global_batch() < 1) return inputError("the plan does not say how many samples a step has");
    CLEAVE_ASSIGN_OR_RETURN(evaluation, evaluationOf(training, data.back()));
    SamplerOptions order{training.global_batch(), training.seed(), train()->shuffle(), dropLast};
    if (lengthsOf(source) > 1) order.groupOf = [this](int64_t sample) { return fitting(train()->lengthOf(sample)); };
    sampler = std::make_unique<Sampler>(train()->size(), std::move(order));
  } catch (const YAML::Exception &error) {
    return inputError(fmt::format("the plan's data map is not valid: {}", error.what()));
  }
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

Status StepData::bind(const std::string &input, const void *array, int64_t bytes) {
  std::vector<int64_t> wanted; // bytes, by length
  for (size_t length = 0; length < lengthsOf(source); ++length)
    for (const Feed &feed : stepFeeds.front().lengths[length])
      if (fields[length][feed.field].name == input) wanted.push_back(feed.stepBytes(stepFeeds.front().microbatches));
  if (wanted.empty()) return inputError(fmt::format("the plan has no input '{}'", input));
  if (!std::ranges::count(wanted, bytes))
    return inputError(fmt::format("input '{}' needs {} bytes (the global batch of a step), {} are given", input,
                                  fmt::join(wanted, " or "), bytes));
  for (Feeds &feeds : stepFeeds) {
    for (std::future<Status> &part : feeds.reading) part.wait();
    for (size_t length = 0; length < feeds.lengths.size(); ++length)
      for (Feed &feed : feeds.lengths[length])
        if (fields[length][feed.field].name == input) {
          feed.bound = bytes == wanted[length] ? static_cast<const std::byte *>(array) : nullptr;
          feed.isBound = true;
          if (feeds.lengths.size() > 1) feeds.isBegun = false; // the samples' length is chosen again
        }
  }
  return Status::ok();
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
  if (order) feeds.before = order->state();
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
  if (!isReadBeside(*from)) return read(feeds, *from, 0, 1);
  // Half of the cores: the others are the step's, or other processes'.
  const int64_t parts = std::clamp<int64_t>(std::thread::hardware_concurrency() / 2, 1, 8);
  for (int64_t number = 0; number < parts; ++number)
    feeds.reading.push_back(std::async(
        std::launch::async, [this, &feeds, from, number, parts] { return read(feeds, *from, number, parts); }));
  return Status::ok();
}

// The samples of one part of each microbatch, into the inputs that this process reads.
Status StepData::read(Feeds &feeds, const Dataset &from, int64_t part, int64_t parts) {
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

// The caller's values of one microbatch are checked, and cut out where they do not lie beside each other.
Status StepData::takeBound(Feeds &feeds, Feed &feed, int64_t microbatch) {
  const int64_t begin = feed.withoutSamples ? 0 : microbatch * feed.microbatchBytes();
  const std::byte *values = feed.bound + begin;
  if (feed.isCutFromBound(feeds.microbatches)) {
    const int64_t width = feed.microbatchBytes() / feed.outer;
    for (int64_t o = 0; o < feed.outer; ++o)
      std::copy_n(feed.bound + (o * feeds.microbatches + microbatch) * width, width,
                  feed.bytes.data() + begin + o * width);
    values = feed.bytes.data() + begin;
  }
  return checkRange(fields[feeds.length][feed.field], {values, static_cast<size_t>(feed.microbatchBytes())}, "",
                    feed.outer > 1 ? -1 : microbatch * feed.samples);
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
      if (feed.bound) CLEAVE_RETURN_IF_ERROR(takeBound(feeds, feed, microbatch));
      const bool isCaller = feed.bound && !feed.isCutFromBound(feeds.microbatches);
      feeds.pointers[static_cast<size_t>(microbatch) * feeds.inputs().size() + i] =
          (isCaller ? feed.bound : feed.bytes.data()) + (feed.withoutSamples ? 0 : microbatch * feed.microbatchBytes());
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
    for (int64_t microbatch = 0; microbatch < (feed.withoutSamples ? 1 : feeds.microbatches); ++microbatch) {
      const std::byte *values = feeds.pointers[static_cast<size_t>(microbatch) * feeds.inputs().size() + i];
      for (int64_t at = 0; at < feed.microbatchBytes(); at += unit) {
        const double value = loadFloat(field.dtype, values + at);
        if (std::isfinite(value)) continue;
        if (feed.withoutSamples) return fmt::format("input '{}' has {}", field.name, value);
        const int64_t row = microbatch * feed.samples + at / piece % feed.samples;
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

namespace {

struct WeightedMean {
  double sum = 0, weights = 0;
  // `share`: of the weight that the mean is divided by.
  void add(double value, double weight, double share = 1) { sum += value * weight, weights += weight * share; }
  double value() const { return sum / weights; }
};

} // namespace

Result<std::optional<EvaluatedLosses>> StepData::evaluate(Executor &engine, int64_t step) {
  if (evaluateFeeds.lengths.empty()) return std::optional<EvaluatedLosses>();
  // As many samples a batch as a step trains on, whatever the microbatches are.
  const plan::Training &training = source.training();
  int64_t samples = evaluateFeeds.samples() * evaluateFeeds.microbatches,
          runs = std::max<int64_t>(1, training.global_batch() / std::max<int64_t>(1, samples)), batch = samples * runs;
  int64_t batches =
      std::max<int64_t>(1, std::min(evaluation.batches, data.back().evaluation->size() / std::max<int64_t>(1, batch)));
  Sampler order(data.back().evaluation->size(), {.batch = batch, .seed = training.seed(), .shuffle = false});
  std::map<std::string, WeightedMean> means; // of the loss, and of each of several
  for (int64_t run = 0; run < batches * runs; ++run) {
    CLEAVE_RETURN_IF_ERROR(draw(evaluateFeeds, &order));
    CLEAVE_RETURN_IF_ERROR(beginFill(evaluateFeeds, &DataSource::evaluation));
    CLEAVE_RETURN_IF_ERROR(endFill(evaluateFeeds));
    CLEAVE_ASSIGN_OR_RETURN(
        auto outputs, engine.run(routineOf(source, "evaluate", evaluateFeeds.length), evaluateFeeds.pointers, step));
    const bool isSum = !outputs.count("loss_weight");
    means[""].add(outputs.at("loss"), isSum ? 1 : outputs.at("loss_weight"),
                  isSum ? 1.0 / static_cast<double>(runs) : 1);
    for (const plan::LossPart &part : training.losses()) {
      auto weight = outputs.find("loss_weight." + part.name());
      means[part.name()].add(outputs.at("loss." + part.name()), weight == outputs.end() ? 1 : weight->second);
    }
  }
  EvaluatedLosses found{means[""].value(), {}};
  if (training.losses_size() > 0) found.loss = 0;
  for (const plan::LossPart &part : training.losses()) {
    found.losses[part.name()] = means[part.name()].value();
    found.loss += part.scale() * found.losses[part.name()];
  }
  return std::optional<EvaluatedLosses>(found);
}

} // namespace cleave::runtime
