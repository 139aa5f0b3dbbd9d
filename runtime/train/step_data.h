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
#include "runtime/train/evaluation.h"
#include "runtime/train/local_batches.h"
#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cleave::runtime {

// Error: the recipe evaluates, and no samples of the data are held out for it.
Status checkHeldOut(const EvaluationRules &rules, const DataSource &data);

// What StepData reads.
struct StepDataOptions {
  std::optional<std::string> path = {}; // in place of the recipe's data.path
  bool evaluatesAll = false;            // all samples are evaluated, and none trains
};

class StepData {
public:
  StepData(const plan::Plan &plan, const Executor &executor) : source(plan), executor(executor) {}

  // Errors: those of openData, a recipe that evaluates without samples that are held out, an input that only the
  // evaluation reads.
  Status open(const StepDataOptions &options);
  // The caller's arrays have these samples of each microbatch only, one microbatch behind the other; by the step's
  // shape (step_shapes.h).
  void bindLocally(std::vector<SampleRange> samples) { local = std::move(samples); }
  const SampleRange &boundSamples(int64_t step) { return local[feedsOf(step).shape]; }
  // Of the global batch of a step of this shape, in the order of the arrays; none: all.
  std::vector<int64_t> localSamples(size_t shape) const;
  // The caller's array of a step's batch, dense, is read from the next step on. Errors: an unknown input, another
  // number of bytes.
  Status bind(const std::string &input, const void *data, int64_t bytes);
  // The same for the next evaluateBound().
  Status bindEvaluation(const std::string &input, const void *data, int64_t bytes);
  // A digest of each of the caller's arrays, by the input's name: processes that read the same samples have equal ones.
  std::map<std::string, std::string> boundDigests(int64_t step);

  int64_t stepsOfEpoch();     // the first one's; 0 without data
  std::string digest() const; // of the number of training samples and some of them: what processes compare
  // Samples that an epoch has twice, so that its last batch is whole; of a ramp, once it has ended.
  int64_t repeatedSamples();
  std::string filled() const { return data.empty() ? "" : data.back().filled; }
  const EvaluationRules &evaluationRules() const { return rules; }
  bool evaluates() const { return rules.every > 0 && heldOut(); }
  bool isEvaluationDue(int64_t step) const { return evaluates() && step % rules.every == 0; }
  int64_t heldOutSamples() const { return heldOut() ? heldOut()->size() : 0; }

  // All samples of the step are read and checked. Error: names the step; the next call reads the same samples again.
  Status ready(int64_t step);
  // As Executor::begin takes them, after ready().
  const std::vector<const std::byte *> &pointers(int64_t step) { return feedsOf(step).pointers; }
  // Of the plan's shapes the one of the ramp, or that the step's samples fit in (step_shapes.h), and the positions that
  // they have together; 0: as many as the inputs have.
  size_t shapeOf(int64_t step) { return feedsOf(step).shape; }
  int64_t positionsOf(int64_t step) { return feedsOf(step).positions; }
  int64_t samplesOf(int64_t step) { return feedsOf(step).counted; }
  // "input 'x' has nan in sample 17 of the data": a number of the step's that is not finite; "" where there is none.
  std::string notFinite(int64_t step);
  // Begins to read the first step that was not yet drawn, below `end`, where that is done beside the step. Its errors
  // show in its ready().
  void readAhead(int64_t end);
  // Adds so many batches of the samples that are held out, 0: all that fill a run. Error: there are none.
  Status evaluate(Executor &executor, int64_t step, int64_t batches, EvaluationSums &sums);
  // Adds the caller's global batch, which is then forgotten. Error: an input of the evaluation that is not bound.
  Status evaluateBound(Executor &executor, int64_t step, EvaluationSums &sums);

  // Where the sampler stands when `step` is the next one to be drawn.
  SamplerState before(int64_t step);
  Status restore(const SamplerState &state, int64_t step);

private:
  using Part = std::unique_ptr<Dataset> DataSource::*;
  bool isReadBeside(const Dataset &from) const;

  // An input of a routine: its field of the data, and the microbatches that are fed.
  struct Feed {
    size_t field = 0;
    int64_t sampleBytes = 0, samples = 0; // of one microbatch over all devices; without samples: the whole input, 1
    int64_t outer = 1;                    // a sample is so many pieces, which the other samples' lie between
    bool withoutSamples = false;          // the same for all microbatches
    std::vector<std::byte> bytes;         // of all microbatches, as the executor takes them
    const std::byte *bound = nullptr;     // the caller's batch; null, too, where that has another length
    bool isBound = false;                 // the caller gives it
    bool read = true;                     // by a device of this process

    int64_t microbatchBytes() const { return samples * sampleBytes; }
    int64_t stepBytes(int64_t microbatches) const { return microbatchBytes() * (withoutSamples ? 1 : microbatches); }
    // The caller gives `given` of a microbatch's samples. Whether they have to be put where the executor reads them.
    bool isCutFromBound(int64_t microbatches, int64_t given) const {
      return bound && outer > 1 && (microbatches > 1 || given < samples);
    }
  };
  struct Feeds {
    int64_t samples() const; // of one microbatch
    const std::vector<Feed> &inputs() const { return shapes[shape]; }
    std::vector<Feed> &inputs() { return shapes[shape]; }

    std::vector<std::vector<Feed>> shapes;   // by shape of the step; in the order of inputsOf(routine)
    size_t shape = 0;                        // which of them is filled
    int64_t positions = 0;                   // of the samples
    int64_t microbatches = 0, step = -1;     // whose samples they have
    bool isBegun = false;                    // to be read
    std::vector<const std::byte *> pointers; // as Executor::run takes them
    std::vector<int64_t> indices;            // of the samples, microbatch by microbatch
    int64_t counted = 0;                     // of them, the leading ones; labels of others are ignored
    SamplerState before;                     // of the sampler, when it gave them
    uint64_t firstTurn = 0;                  // of the first of them, among all that the training takes
    std::vector<std::future<Status>> reading;
  };
  Status openDataset(const StepDataOptions &options);
  Result<Feeds> makeFeeds(const std::string &routine) const;
  Result<std::vector<Feed>> makeInputs(const std::string &routine, const std::vector<Field> &of) const;
  size_t fitting(int64_t positions) const;
  Status chooseShape(Feeds &feeds, Part part) const;
  const Dataset *dataOf(size_t shape, Part part) const;
  const Dataset *train() const { return data.empty() ? nullptr : data.back().train.get(); }
  const Dataset *heldOut() const { return data.empty() ? nullptr : (data.back().*evaluated).get(); }
  Feeds &feedsOf(int64_t step) { return stepFeeds[static_cast<size_t>(step) % stepFeeds.size()]; }
  Status begin(int64_t step);
  Status draw(Feeds &feeds, Sampler *order);
  Status beginFill(Feeds &feeds, Part part);
  Status read(Feeds &feeds, const Dataset &from, bool trains, int64_t part, int64_t parts);
  Status fillSamples(const Feeds &feeds, const Dataset &from, bool trains, size_t field, size_t begin, size_t count,
                     std::byte *out) const;
  Status endFill(Feeds &feeds);
  int64_t boundBytes(size_t shape, const Feed &feed) const;
  Status checkBound(const std::string &input, const std::vector<int64_t> &wanted, int64_t bytes) const;
  Result<const std::byte *> takeBound(size_t shape, const Feed &feed, int64_t microbatch, std::byte *room) const;
  Status runEvaluation(Executor &executor, int64_t step, EvaluationSums &sums);
  // Of a microbatch, those that the caller gives.
  SampleRange givenOf(size_t shape, const Feed &feed) const {
    return feed.withoutSamples || !feed.isBound || local.empty() ? SampleRange{0, feed.samples} : local[shape];
  }

  const plan::Plan &source;
  const Executor &executor;
  std::vector<std::vector<Field>> fields; // by shape of the step
  std::vector<DataSource> data;           // likewise, empty where it is that of the last; none: the caller binds arrays
  std::unique_ptr<Sampler> sampler;
  std::vector<SampleRange> local; // by shape; none: the caller's arrays are of the global batch
  // One for the step that runs; on GPUs, for the next one, too, which is begun; where steps run into each other, for
  // the one that ends, the next, and what it is ahead of; and one for what is read beside them, where data is slow.
  std::vector<Feeds> stepFeeds;
  Feeds evaluateFeeds;
  int64_t drawn = 0; // steps whose samples are taken
  EvaluationRules rules;
  Part evaluated = &DataSource::evaluation;
};

} // namespace cleave::runtime
