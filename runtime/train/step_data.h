// The data of a training's steps: the plan's inputs, filled with samples in the sampler's order or by the caller.
//
//   StepData data(plan, executor);
//   Status s = data.open("");                   // the recipe's data.path
//   s = data.ready(step);                       // reads the samples of a step, or waits for what is being read
//   executor.begin("step", data.pointers(step), step);
//   s = data.readAhead(step + 1);               // where reading is slow: beside the step that runs
#pragma once
#include "runtime/engine/executor/executor.h"
#include "runtime/train/data/dataset.h"
#include "runtime/train/data/sampler.h"
#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cleave::runtime {

// Mean losses: the one that trains, and of a sum each of its parts by name.
struct EvaluatedLosses {
  double loss = 0;
  std::map<std::string, double> losses;
};

// How often a training evaluates, and on how many batches; every = 0: never.
struct EvaluationPeriod {
  int64_t every = 0, batches = 10;
};
// Error: the recipe has `eval`, and no samples of the data are held out for it.
Result<EvaluationPeriod> evaluationOf(const plan::Training &training, const DataSource &data);

class StepData {
public:
  StepData(const plan::Plan &plan, const Executor &executor) : source(plan), executor(executor) {}

  // `path` replaces the recipe's data.path where it is given. Errors: those of openData, a recipe that evaluates
  // without samples that are held out, an input that only the evaluation reads.
  Status open(const std::optional<std::string> &path);
  // The caller's array of a step's global batch, dense, is read from the next step on. Errors: an unknown input,
  // another number of bytes.
  Status bind(const std::string &input, const void *data, int64_t bytes);

  int64_t stepsOfEpoch() const; // 0 without data
  std::string digest() const;   // of the number of training samples and some of them: what processes compare
  // Samples that an epoch has twice, so that its last batch is whole.
  int64_t repeatedSamples() const {
    return sampler ? std::max<int64_t>(0, sampler->samplesPerEpoch() - train()->size()) : 0;
  }
  std::string filled() const { return data.empty() ? "" : data.back().filled; }
  bool evaluates() const { return evaluation.every > 0 && !data.empty() && data.back().evaluation; }
  bool isEvaluationDue(int64_t step) const { return evaluates() && step % evaluation.every == 0; }

  // All samples of the step are read and checked. Error: names the step; the next call reads the same samples again.
  Status ready(int64_t step);
  // As Executor::begin takes them, after ready().
  const std::vector<const std::byte *> &pointers(int64_t step) { return feedsOf(step).pointers; }
  // Of the plan's lengths the one that the step's samples fit in (sequence_lengths.h), and the positions that they have
  // together; 0: as many as the inputs have.
  size_t lengthOf(int64_t step) { return feedsOf(step).length; }
  int64_t positionsOf(int64_t step) { return feedsOf(step).positions; }
  // "input 'x' has nan in sample 17 of the data": a number of the step's that is not finite; "" where there is none.
  std::string notFinite(int64_t step);
  // Begins to read the first step that was not yet drawn, below `end`, where that is done beside the step. Its errors
  // show in its ready().
  void readAhead(int64_t end);
  // Of the samples that are held out; none where the plan cannot evaluate.
  Result<std::optional<EvaluatedLosses>> evaluate(Executor &executor, int64_t step);

  // Where the sampler stands when `step` is the next one to be drawn.
  SamplerState before(int64_t step);
  Status restore(const SamplerState &state, int64_t step);

private:
  bool isReadBeside(const Dataset &from) const;

  // An input of a routine: its field of the data, and the microbatches that are fed.
  struct Feed {
    size_t field = 0;
    int64_t sampleBytes = 0, samples = 0; // of one microbatch over all devices; without samples: the whole input, 1
    int64_t outer = 1;                    // a sample is so many pieces, which the other samples' lie between
    bool withoutSamples = false;          // the same for all microbatches
    std::vector<std::byte> bytes;         // of all microbatches, as the executor takes them
    const std::byte *bound = nullptr;     // the caller's global batch; null, too, where that has another length
    bool isBound = false;                 // the caller gives it
    bool read = true;                     // by a device of this process

    int64_t microbatchBytes() const { return samples * sampleBytes; }
    int64_t stepBytes(int64_t microbatches) const { return microbatchBytes() * (withoutSamples ? 1 : microbatches); }
    // Whether the caller's global batch has the microbatches side by side in each piece.
    bool isCutFromBound(int64_t microbatches) const { return bound && outer > 1 && microbatches > 1; }
  };
  struct Feeds {
    int64_t samples() const; // of one microbatch
    const std::vector<Feed> &inputs() const { return lengths[length]; }
    std::vector<Feed> &inputs() { return lengths[length]; }

    std::vector<std::vector<Feed>> lengths;  // by length of samples; in the order of inputsOf(routine)
    size_t length = 0;                       // which of them is filled
    int64_t positions = 0;                   // of the samples
    int64_t microbatches = 0, step = -1;     // whose samples they have
    bool isBegun = false;                    // to be read
    std::vector<const std::byte *> pointers; // as Executor::run takes them
    std::vector<int64_t> indices;            // of the samples, microbatch by microbatch
    SamplerState before;                     // of the sampler, when it gave them
    std::vector<std::future<Status>> reading;
  };
  Status openDataset(const std::optional<std::string> &path);
  Result<Feeds> makeFeeds(const std::string &routine) const;
  Result<std::vector<Feed>> makeInputs(const std::string &routine, const std::vector<Field> &of) const;
  size_t fitting(int64_t positions) const;
  Status chooseLength(Feeds &feeds, const Dataset *from) const;
  const Dataset *train() const { return data.empty() ? nullptr : data.back().train.get(); }
  Feeds &feedsOf(int64_t step) { return stepFeeds[static_cast<size_t>(step) % stepFeeds.size()]; }
  Status begin(int64_t step);
  using Part = std::unique_ptr<Dataset> DataSource::*;
  Status draw(Feeds &feeds, Sampler *order);
  Status beginFill(Feeds &feeds, Part part);
  Status read(Feeds &feeds, const Dataset &from, int64_t part, int64_t parts);
  Status endFill(Feeds &feeds);
  Status takeBound(Feeds &feeds, Feed &feed, int64_t microbatch);

  const plan::Plan &source;
  const Executor &executor;
  std::vector<std::vector<Field>> fields; // by length of samples
  std::vector<DataSource> data;           // likewise; none: the caller binds arrays
  std::unique_ptr<Sampler> sampler;
  // One for the step that runs; on GPUs, for the next one, too, which is begun; where steps run into each other, for
  // the one that ends, the next, and what it is ahead of; and one for what is read beside them, where data is slow.
  std::vector<Feeds> stepFeeds;
  Feeds evaluateFeeds;
  int64_t drawn = 0; // steps whose samples are taken
  EvaluationPeriod evaluation;
};

} // namespace cleave::runtime
