#include "runtime/train/data/dataset.h"
#include "runtime/base/url.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/train/data/kinds.h"
#include "runtime/train/data/lengths.h"
#include "runtime/train/data/mixing.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::runtime {
namespace {

class SliceDataset : public Dataset {
public:
  SliceDataset(std::shared_ptr<Dataset> whole, int64_t begin, int64_t count)
      : Dataset(whole->fields(), whole->shuffle()), whole(std::move(whole)), begin(begin), count(count) {}
  int64_t size() const override { return count; }
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    return whole->fill(field, moved(indices), out);
  }
  Status fillTraining(size_t field, std::span<const int64_t> indices, uint64_t turn, std::byte *out) const override {
    return whole->fillTraining(field, moved(indices), turn, out);
  }
  bool isSlow() const override { return whole->isSlow(); }
  std::unique_ptr<Dataset> atLength(std::vector<Field> of) const override {
    std::shared_ptr<Dataset> other = whole->atLength(std::move(of));
    return other ? slice(std::move(other), begin, count) : nullptr;
  }
  int64_t lengthOf(int64_t sample) const override { return whole->lengthOf(begin + sample); }

private:
  std::vector<int64_t> moved(std::span<const int64_t> indices) const {
    std::vector<int64_t> all(indices.begin(), indices.end());
    for (int64_t &index : all) index += begin;
    return all;
  }

  std::shared_ptr<Dataset> whole;
  int64_t begin, count;
};

} // namespace

int64_t Field::elements() const { return elementCount(shape); }
int64_t Field::bytes() const { return elements() * byteSize(dtype); }

Status checkRange(const Field &field, std::span<const std::byte> values, const std::string &path, int64_t sample) {
  if (!field.least || field.upperBound <= 0 || (field.dtype != plan::I64 && field.dtype != plan::I32))
    return Status::ok();
  const int64_t unit = byteSize(field.dtype), count = std::ssize(values) / unit;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = loadInteger(field.dtype, values.data() + i * unit);
    if ((value >= *field.least && value < field.upperBound) || std::ranges::count(field.ignored, value)) continue;
    const std::string from = path.empty() ? "" : path + ": ";
    const std::string at =
        sample < 0 ? "" : fmt::format(" at sample {}", sample + i / std::max<int64_t>(1, field.elements()));
    if (field.label)
      return inputError(
          fmt::format("{}label {}{}, and the model has {} classes (0 to {}){}", from, value, at, field.upperBound,
                      field.upperBound - 1,
                      field.ignored.empty() ? "" : fmt::format("; {} is ignored", fmt::join(field.ignored, ", "))));
    return inputError(fmt::format("{}{}{} of input '{}' is out of its range, {} to {}", from, value, at, field.name,
                                  *field.least, field.upperBound - 1));
  }
  return Status::ok();
}

std::unique_ptr<Dataset> slice(std::shared_ptr<Dataset> whole, int64_t begin, int64_t count) {
  return std::make_unique<SliceDataset>(std::move(whole), begin, count);
}

DataSource splitSamples(std::shared_ptr<Dataset> whole, double trainSplit) {
  const int64_t samples = whole->size();
  const int64_t training = std::max<int64_t>(1, std::llround(trainSplit * static_cast<double>(samples)));
  DataSource source;
  source.train = slice(whole, 0, training);
  if (training < samples) source.evaluation = slice(whole, training, samples - training);
  return source;
}

Result<std::vector<Field>> dataFields(std::span<const plan::InputBinding *const> inputs) {
  std::vector<Field> fields;
  for (const plan::InputBinding *input : inputs) {
    Field &field = fields.emplace_back();
    field.name = input->name();
    field.dtype = input->buffer().dtype();
    field.shape.assign(input->global_shape().begin(), input->global_shape().end());
    field.withoutSamples = input->without_samples();
    if (!field.withoutSamples) field.shape.erase(field.shape.begin() + input->sample_dim());
    field.label = input->label();
    field.upperBound = input->upper_bound();
    if (input->has_least()) field.least = input->least();
    field.ignored.assign(input->ignored().begin(), input->ignored().end());
    if (field.elements() < 0 || byteSize(field.dtype) == 0)
      return inputError(fmt::format("the plan's input '{}' has an impossible shape or type", input->name()));
  }
  return fields;
}

Result<DataSource> openKind(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed) {
  if (settings.kind == "synthetic") return openSynthetic(settings, fields, seed);
  if (settings.kind == "mixture") return openMixture(settings, fields, seed);
  if (settings.paths.empty() || std::ranges::count(settings.paths, "") > 0)
    return inputError(fmt::format("data of kind '{}' needs a path", settings.kind));
  for (const std::string &path : settings.paths) CLEAVE_RETURN_IF_ERROR(refuseUrl(path));
  if (settings.kind == "arrays") return openArrays(settings, fields, seed);
  if (settings.kind == "chars") return openChars(settings, fields);
  if (settings.kind == "tokens") return openTokens(settings, fields);
  if (settings.paths.size() != 1)
    return inputError(fmt::format("data of kind '{}' is in one folder, and data.path names {}", settings.kind,
                                  settings.paths.size()));
  if (settings.kind == "cifar10") return openCifar10(settings, fields, seed);
  if (settings.kind == "images") return openImages(settings, fields, seed);
  return inputError(
      fmt::format("data of kind '{}' is not known; known: arrays, chars, tokens, cifar10, images, mixture, synthetic",
                  settings.kind));
}

Result<DataSource> openData(const std::string &yaml, const std::vector<Field> &given, const DataOptions &options) {
  CLEAVE_ASSIGN_OR_RETURN(DataSettings settings, parseDataSettings(yaml));
  if (!options.path.empty() && settings.kind == "mixture")
    return inputError("data of kind 'mixture' has a path for each source: none can replace them all");
  if (!options.path.empty()) settings.paths = {options.path};
  if (options.holdsNoneBack) settings.trainSplit = 1;
  std::vector<Field> fields = given;
  if (settings.lengths.size() == 1) markLength(fields, settings.lengths.front());
  if (fields.empty()) return inputError("the plan has no inputs to fill with data");
  CLEAVE_ASSIGN_OR_RETURN(DataSource source, openKind(settings, fields, options.seed));
  source.lastBatch = settings.lastBatch;
  if (settings.mixup > 0 || settings.cutmix > 0) {
    CLEAVE_RETURN_IF_ERROR(Mixing::check(settings, fields));
    source.mixing = std::make_shared<Mixing>(settings, options.seed);
  }
  return source;
}

} // namespace cleave::runtime
