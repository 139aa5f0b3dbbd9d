#include "runtime/train/data/kinds.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

// Datasets with the same fields, one behind the other: torch's ConcatDataset.
class MixtureDataset : public Dataset {
public:
  struct Part {
    std::unique_ptr<Dataset> data;
    double weight;
    int64_t before = 0; // samples of the parts before it
  };
  MixtureDataset(std::vector<Field> fields, bool shuffled, std::vector<Part> given)
      : Dataset(std::move(fields), shuffled), parts(std::move(given)) {
    for (Part &part : parts) part.before = std::exchange(samples, samples + part.data->size());
  }
  int64_t size() const override { return samples; }
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    return each(field, indices, out, [&](const Dataset &data, std::span<const int64_t> own, std::byte *to) {
      return data.fill(field, own, to);
    });
  }
  Status fillTraining(size_t field, std::span<const int64_t> indices, uint64_t turn, std::byte *out) const override {
    return each(field, indices, out, [&](const Dataset &data, std::span<const int64_t> own, std::byte *to) {
      return data.fillTraining(field, own, turn++, to);
    });
  }
  bool isSlow() const override {
    return std::ranges::any_of(parts, [](const Part &part) { return part.data->isSlow(); });
  }
  std::vector<Share> shares() const override {
    std::vector<Share> result;
    for (const Part &part : parts) result.push_back({part.data->size(), part.weight});
    return result;
  }

private:
  Status each(size_t field, std::span<const int64_t> indices, std::byte *out, auto fillOne) const {
    for (int64_t index : indices) {
      const Part &part = *std::prev(std::ranges::upper_bound(parts, index, {}, &Part::before));
      const int64_t own = index - part.before;
      CLEAVE_RETURN_IF_ERROR(fillOne(*part.data, std::span(&own, 1), out));
      out += fieldList[field].bytes();
    }
    return Status::ok();
  }

  std::vector<Part> parts;
  int64_t samples = 0;
};

std::unique_ptr<Dataset> joined(const std::vector<Field> &fields, bool shuffled,
                                std::vector<MixtureDataset::Part> parts) {
  if (parts.empty()) return nullptr;
  return std::make_unique<MixtureDataset>(fields, shuffled, std::move(parts));
}

// Inputs that are the same for all samples are the same in all sources.
Status checkWholeFields(const std::vector<Field> &fields, const Dataset &first, const Dataset &other, size_t number) {
  constexpr int64_t sample = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!fields[i].withoutSamples) continue;
    std::vector<std::byte> one(static_cast<size_t>(fields[i].bytes())), two(one.size());
    CLEAVE_RETURN_IF_ERROR(first.fill(i, {&sample, 1}, one.data()));
    CLEAVE_RETURN_IF_ERROR(other.fill(i, {&sample, 1}, two.data()));
    if (one != two)
      return inputError(fmt::format("data.sources: input '{}' is the same for all samples of a step, and source {} has "
                                    "another than the first",
                                    fields[i].name, number + 1));
  }
  return Status::ok();
}

} // namespace

Result<DataSource> openMixture(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed) {
  DataSource source;
  std::vector<MixtureDataset::Part> train, evaluation;
  for (size_t i = 0; i < settings.sources.size(); ++i) {
    const DataSettings &of = settings.sources[i];
    if (of.kind == "mixture" || !of.lengths.empty() || !(of.weight >= 1e-6 && of.weight <= 1e6))
      return inputError(
          fmt::format("data.sources: source {} is a mixture itself, has lengths, or a weight of {}, which "
                      "is not from 1e-6 to 1e6",
                      i + 1, of.weight));
    // Synthetic sources differ.
    CLEAVE_ASSIGN_OR_RETURN(DataSource opened, openKind(of, fields, seed + i));
    if (i > 0) CLEAVE_RETURN_IF_ERROR(checkWholeFields(fields, *train.front().data, *opened.train, i));
    train.push_back({std::move(opened.train), of.weight});
    if (opened.evaluation) evaluation.push_back({std::move(opened.evaluation), of.weight});
    if (i == 0) source.filled = opened.filled;
    if (source.filled != opened.filled)
      return inputError(fmt::format("data.sources: source {} lacks the inputs {}, and the first one {}: each must be "
                                    "filled in all sources or in none",
                                    i + 1, opened.filled.empty() ? "{}" : opened.filled,
                                    source.filled.empty() ? "{}" : source.filled));
  }
  if (train.empty()) return inputError("data of kind 'mixture' needs sources");
  source.train = joined(fields, settings.shuffle, std::move(train));
  source.evaluation = joined(fields, false, std::move(evaluation));
  return source;
}

} // namespace cleave::runtime
