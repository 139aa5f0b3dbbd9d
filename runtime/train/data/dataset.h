// Training data: samples with named fields, read into dense microbatch arrays. Kinds: arrays, chars, tokens, cifar10,
// images, mixture, synthetic (docs/reference/recipe.md).
//
//     std::vector<Field> fields = {{"input_ids", plan::I64, {64}}, {"labels", plan::I64, {64}, true}};   // of one
//     sample Result<DataSource> source = openData(training.data_yaml(), fields, options); Sampler
//     sampler(source->train->size(), {.seed = 7, .shuffle = source->train->shuffle()}); source->train->fill(0,
//     sampler.next(8), buffer);      // 8 samples of input_ids: i64[8, 64]
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include "runtime/train/data/blend.h"
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cleave::runtime {

// One input of the plan, as one sample has it.
struct Field {
  std::string name;
  plan::DType dtype = plan::DTYPE_INVALID;
  std::vector<int64_t> shape; // without the dimension of samples; empty: one number a sample
  bool label = false;
  int64_t upperBound = 0;              // integers are below it; 0: not known
  std::optional<int64_t> least = {};   // one below it, or not below upperBound, is an error; none: it may be
  std::vector<int64_t> ignored = {};   // are no error, wherever they are
  bool withoutSamples = false;         // `shape` is the whole input, the same for all samples of a step
  std::vector<size_t> lengthDims = {}; // dimensions of `shape` that are as long as a step's samples (lengths.h)

  int64_t elements() const;
  int64_t bytes() const; // of one sample
};

class Mixing;

class Dataset {
public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0; // samples
  // Writes the samples `indices` of field number `field` one after the other: indices.size() * fields[field].bytes().
  // A field without samples is read as sample 0. By several threads at a time, too.
  virtual Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const = 0;
  // The same of samples that train. indices[i] is number `turn` + i of all that the training takes, from which all that
  // is random about it follows, whatever the split, and after a resume.
  virtual Status fillTraining(size_t field, std::span<const int64_t> indices, uint64_t turn, std::byte *out) const {
    return (void)turn, fill(field, indices, out);
  }
  // Of a mixture: its sources and their weights (sampler.h).
  virtual std::vector<Share> shares() const { return {}; }
  // Whether a sample takes so long that a batch is better read by threads of its own, beside the step before.
  virtual bool isSlow() const { return false; }
  // The same samples, in fields of another length; null: samples have one length only.
  virtual std::unique_ptr<Dataset> atLength(std::vector<Field> /*fields*/) const { return nullptr; }
  // Positions of a sample, where samples have several lengths; 0: as many as the fields have.
  virtual int64_t lengthOf(int64_t /*sample*/) const { return 0; }

  const std::vector<Field> &fields() const { return fieldList; }
  bool shuffle() const { return shuffled; }

protected:
  Dataset(std::vector<Field> fields, bool shuffled) : fieldList(std::move(fields)), shuffled(shuffled) {}
  std::vector<Field> fieldList;
  bool shuffled;
};

struct DataSource {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> evaluation;  // null without train_split below 1 or test files
  std::string vocabulary;               // chars: the symbols (bytes) in the order of their numbers; else ""
  std::string filled;                   // inputs that the data does not give (sequence.h), for a person
  std::shared_ptr<const Mixing> mixing; // of the samples of a batch that trains (mixing.h); null: none
  std::string lastBatch = "repeat";     // what becomes of samples that fill no batch; or "drop", "smaller"
};

struct DataOptions {
  std::string path;  // replaces the recipe's (`cleave run --data`); "" keeps it
  uint64_t seed = 0; // of synthetic data, and of what is changed at random
  bool holdsNoneBack = false; // data.train_split does not count
};

// The fields of a routine's inputs (inputsOf(plan, "step")): global shapes without the dimension of samples.
Result<std::vector<Field>> dataFields(std::span<const plan::InputBinding *const> inputs);

// An error where an integer is out of the field's range: "data.npz: label 11 at sample 5, and the model has 4 classes".
// `values`: of whole samples, one after the other, the first of them number `sample`; -1: they lie otherwise. `path`:
// of the data, or "".
Status checkRange(const Field &field, std::span<const std::byte> values, const std::string &path, int64_t sample);

// `yaml` is the recipe's resolved `data` map. Errors name the file: missing, malformed, an array that no field matches
// or whose shape or type cannot serve, values outside of a type's range.
Result<DataSource> openData(const std::string &yaml, const std::vector<Field> &fields, const DataOptions &options = {});

} // namespace cleave::runtime
