#include "runtime/train/data/ragged.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/empty_label.h"
#include "runtime/plan/float_convert.h"
#include "runtime/train/data/kinds.h"
#include "runtime/train/data/sequence.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

namespace cleave::runtime {
namespace {

// What the datasets of all lengths share.
struct RaggedData {
  DataSettings settings;
  std::vector<RaggedSource> sources;
  std::vector<SamplePart> pieces;
  std::vector<size_t> rows; // the first piece of each, and the end
  std::vector<double> pads; // by field

  int64_t positionsOf(int64_t row) const {
    int64_t positions = 0;
    for (const SamplePart &piece : piecesOf(row)) positions += piece.count;
    return positions;
  }
  std::span<const SamplePart> piecesOf(int64_t row) const {
    const auto at = static_cast<size_t>(row);
    return std::span(pieces).subspan(rows[at], rows[at + 1] - rows[at]);
  }
};

// Elements of one position, or of one sample where the field has no positions.
int64_t innerOf(const Field &field) {
  const int64_t length = field.lengthDims.empty() ? 1 : field.shape[field.lengthDims.front()];
  return field.elements() / std::max<int64_t>(1, length);
}

// Where a field's numbers of a sample are: they begin at `part`, or are row `row`.
JoinedArray::Place placeOf(const Field &field, const RaggedSource &source, const SamplePart &part, int64_t row) {
  return source.array.placeOf(innerOf(field) * (field.lengthDims.empty() ? row : part.begin));
}

class RaggedDataset : public Dataset {
public:
  RaggedDataset(std::shared_ptr<const RaggedData> data, std::vector<Field> fields)
      : Dataset(std::move(fields), data->settings.shuffle), data(std::move(data)) {}
  int64_t size() const override { return static_cast<int64_t>(data->rows.size()) - 1; }
  int64_t lengthOf(int64_t row) const override { return data->positionsOf(row); }
  std::unique_ptr<Dataset> atLength(std::vector<Field> fields) const override {
    return std::make_unique<RaggedDataset>(data, std::move(fields));
  }

  Status fill(size_t number, std::span<const int64_t> indices, std::byte *out) const override {
    const Field &field = fieldList[number];
    for (int64_t row : indices) {
      const SamplePart whole{0, lengthOfStep(field)};
      const std::span<const SamplePart> pieces = field.withoutSamples ? std::span(&whole, 1) : data->piecesOf(row);
      if (!field.withoutSamples && !field.lengthDims.empty() && data->positionsOf(row) > whole.count)
        return inputError(fmt::format("row {} has {} positions, input '{}' takes {}", row, data->positionsOf(row),
                                      field.name, whole.count));
      if (const RaggedSource &source = data->sources[number]; source.array.empty())
        make(field, source.content, pieces, out);
      else if (field.lengthDims.empty())
        CLEAVE_RETURN_IF_ERROR(source.array.convert(row * field.elements(), field.elements(), field.dtype, out));
      else
        CLEAVE_RETURN_IF_ERROR(copy(field, source, data->pads[number], pieces, out));
      CLEAVE_RETURN_IF_ERROR(checkRange(field, {out, static_cast<size_t>(field.bytes())},
                                        placeOf(field, data->sources[number], pieces.front(), row).path, row));
      out += field.bytes();
    }
    return Status::ok();
  }

private:
  static int64_t lengthOfStep(const Field &field) {
    return field.lengthDims.empty() ? 1 : field.shape[field.lengthDims.front()];
  }

  static Status copy(const Field &field, const RaggedSource &source, double pad, std::span<const SamplePart> pieces,
                     std::byte *out) {
    const int64_t inner = innerOf(field), unit = byteSize(field.dtype);
    std::byte *const end = out + field.bytes();
    for (const SamplePart &piece : pieces) {
      CLEAVE_RETURN_IF_ERROR(
          source.array.convert((piece.begin + source.shift) * inner, piece.count * inner, field.dtype, out));
      out += piece.count * inner * unit;
    }
    for (; out < end; out += unit) storeNumber(field.dtype, pad, out);
    return Status::ok();
  }

  void make(const Field &field, Content content, std::span<const SamplePart> pieces, std::byte *out) const {
    if (content == Content::Mask) return makeMask(field, pieces, out);
    const int64_t unit = byteSize(field.dtype), length = lengthOfStep(field);
    int64_t position = 0;
    auto put = [&](double value) { storeNumber(field.dtype, value, out + unit * position++); };
    for (size_t piece = 0; piece < pieces.size(); ++piece)
      for (int64_t i = 0; i < pieces[piece].count; ++i)
        put(content == Content::Positions  ? static_cast<double>(i)
            : content == Content::Segments ? static_cast<double>(piece + 1)
                                           : content == Content::Ones);
    while (position < length) put(0);
  }

  // Numbers of a float are added to the scores: 0 or minus infinity. Others say which positions are seen.
  void makeMask(const Field &field, std::span<const SamplePart> pieces, std::byte *out) const {
    const int64_t unit = byteSize(field.dtype), length = lengthOfStep(field);
    const bool isAdded = isFloat(field.dtype);
    const double hidden = isAdded ? -std::numeric_limits<double>::infinity() : 0, seen = isAdded ? 0 : 1;
    for (int64_t i = 0; i < length * length; ++i) storeNumber(field.dtype, hidden, out + unit * i);
    int64_t begin = 0;
    for (const SamplePart &piece : pieces) {
      for (int64_t query = 0; query < piece.count; ++query)
        for (int64_t key = 0; key < (data->settings.causal ? query + 1 : piece.count); ++key)
          storeNumber(field.dtype, seen, out + unit * ((begin + query) * length + begin + key));
      begin += piece.count;
    }
    for (; begin < length; ++begin) storeNumber(field.dtype, seen, out + unit * (begin * length + begin));
  }

  std::shared_ptr<const RaggedData> data;
};

// What stands behind a sample's end: the recipe's number; of labels one that the loss ignores; else 0.
Result<double> padOf(const DataSettings &settings, const Field &field) {
  if (auto given = settings.pad.find(field.name); given != settings.pad.end()) return given->second;
  if (!field.label) return 0.0;
  // Metrics would count the label of empty places, and so would a mean over samples.
  const auto ignored = field.ignored.empty() ? emptyLabel : static_cast<double>(field.ignored.front());
  if (ignored != emptyLabel) return ignored;
  return inputError(
      fmt::format("data.lengths: the loss counts every label of '{}', and there is none behind a sample's "
                  "end: give the loss an ignore_index, or data.pad.{} a number",
                  field.name, field.name));
}

Status checkField(const DataSettings &settings, const Field &field, const RaggedSource &source) {
  if (settings.pack && field.withoutSamples && field.lengthDims.size() > 0)
    return inputError(
        fmt::format("data.pack: input '{}' is the same for all samples of a step, and packed samples need "
                    "their own: export it with a dimension of samples",
                    field.name));
  if (settings.pack && field.lengthDims.empty() && !field.withoutSamples)
    return inputError(
        fmt::format("data.pack: '{}' has one value for each sample, and packed samples share a row", field.name));
  if (source.array.empty()) return checkFill(field, source.content, settings);
  if (field.lengthDims.empty() && !field.withoutSamples) return Status::ok();
  const bool isRow = field.lengthDims.size() == 1 && !field.withoutSamples &&
                     elementCount(std::span(field.shape).first(field.lengthDims.front())) == 1;
  if (!isRow)
    return inputError(
        fmt::format("data.lengths: input '{}' is [{}] of a sample, and is filled from an array of positions: "
                    "one dimension of positions, before all others, is needed",
                    field.name, fmt::join(field.shape, ", ")));
  return Status::ok();
}

// The file of a sample.
std::string pathOf(const std::vector<Field> &fields, const std::vector<RaggedSource> &sources, const SamplePart &part) {
  for (size_t i = 0; i < fields.size(); ++i)
    if (!fields[i].lengthDims.empty() && !sources[i].array.empty()) return placeOf(fields[i], sources[i], part, 0).path;
  return "data";
}

// Samples one behind the other, as long as they fit into a row.
std::vector<size_t> rowsOf(const DataSettings &settings, const std::vector<SamplePart> &samples) {
  std::vector<size_t> rows;
  int64_t room = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!settings.pack || rows.empty() || samples[i].count > room) {
      rows.push_back(i);
      room = settings.lengths.back();
    }
    room -= samples[i].count;
  }
  rows.push_back(samples.size());
  return rows;
}

} // namespace

Result<DataSource> makeRagged(const DataSettings &settings, std::vector<Field> fields,
                              std::vector<RaggedSource> sources, std::vector<SamplePart> samples) {
  auto data = std::make_shared<RaggedData>();
  std::vector<Content> contents;
  for (size_t i = 0; i < fields.size(); ++i) {
    CLEAVE_RETURN_IF_ERROR(checkField(settings, fields[i], sources[i]));
    contents.push_back(sources[i].array.empty() ? sources[i].content : Content::Given);
    CLEAVE_ASSIGN_OR_RETURN(double pad,
                            fields[i].lengthDims.empty() ? Result<double>(0.0) : padOf(settings, fields[i]));
    data->pads.push_back(pad);
  }
  for (size_t i = 0; i < samples.size(); ++i)
    if (samples[i].count > settings.lengths.back())
      return inputError(fmt::format("{}: sample {} has {} positions, the longest of data.lengths is {}",
                                    pathOf(fields, sources, samples[i]), i, samples[i].count, settings.lengths.back()));
  if (samples.empty()) return inputError(fmt::format("{}: holds no samples", fmt::join(settings.paths, ", ")));
  data->settings = settings;
  data->sources = std::move(sources);
  data->rows = rowsOf(settings, samples);
  data->pieces = std::move(samples);
  std::string filled = filledText(fields, contents);
  DataSource source = splitSamples(std::make_shared<RaggedDataset>(data, std::move(fields)), settings.trainSplit);
  source.filled = std::move(filled);
  return source;
}

} // namespace cleave::runtime
