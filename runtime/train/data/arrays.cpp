#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/train/data/array.h"
#include "runtime/train/data/kinds.h"
#include "runtime/train/data/ragged.h"
#include "runtime/train/data/sequence.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::runtime {
namespace {

class ArrayDataset : public Dataset {
public:
  ArrayDataset(std::vector<Field> fields, const DataSettings &settings, std::vector<RaggedSource> sources,
               int64_t samples)
      : Dataset(std::move(fields), settings.shuffle), path(settings.path), sources(std::move(sources)),
        samples(samples) {}
  int64_t size() const override { return samples; }
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    const Field &of = fieldList[field];
    for (int64_t index : indices) {
      if (of.withoutSamples) index = 0;
      if (const RaggedSource &from = sources[field]; from.array)
        CLEAVE_RETURN_IF_ERROR(convertElements(*from.array, index * of.elements(), of.elements(), of.dtype, out));
      else
        make(of, from.content, out);
      CLEAVE_RETURN_IF_ERROR(checkRange(of, {out, static_cast<size_t>(of.bytes())}, path, index));
      out += of.bytes();
    }
    return Status::ok();
  }

private:
  // Positions are along the last dimension; all of them belong to one sample.
  static void make(const Field &field, Content content, std::byte *out) {
    const int64_t length = field.shape.empty() ? 1 : field.shape.back(), unit = byteSize(field.dtype);
    for (int64_t i = 0; i < field.elements(); ++i)
      storeNumber(field.dtype, content == Content::Positions ? double(i % length) : double(content != Content::Zeros),
                  out + i * unit);
  }

  std::string path;
  std::vector<RaggedSource> sources;
  int64_t samples;
};

Status noArray(const Field &field, const std::string &wanted, const DataSettings &settings,
               const std::map<std::string, Array> &file) {
  std::vector<std::string> names;
  for (const auto &[name, array] : file) names.push_back(name);
  return inputError(fmt::format("{}: has no array '{}' for the {} of that name; it has: {}{}", settings.path, wanted,
                                field.label ? "labels" : "input", fmt::join(names, ", "),
                                field.label ? "" : "; or " + fillAdvice(field.name)));
}

// The array that the recipe names for the field, else the one of the field's name; `array` is null where the field is
// filled. Error: its type cannot serve, or the file has none and nothing says what else the field takes.
struct FoundArray {
  std::string name;
  const Array *array = nullptr;
  Content content = Content::Given;
};
Result<FoundArray> arrayFor(const Field &field, const DataSettings &settings,
                            const std::map<std::string, Array> &file) {
  auto renamed = settings.fields.find(field.name);
  FoundArray result{renamed == settings.fields.end() ? field.name : renamed->second};
  auto found = file.find(result.name);
  if (found == file.end() || settings.fill.contains(field.name)) {
    result.content = contentOf(field, settings);
    if (std::ranges::count(std::array{Content::Given, Content::Tokens, Content::NextTokens}, result.content))
      return noArray(field, result.name, settings, file);
    return result;
  }
  result.array = &found->second;
  // Whether the types convert shows on no elements at all.
  if (Status converts = convertElements(*result.array, 0, 0, field.dtype, nullptr); !converts)
    return inputError(fmt::format("{}: array '{}': {}", settings.path, result.name, converts.message()));
  return result;
}

std::vector<int64_t> withoutOnes(std::span<const int64_t> shape) {
  std::vector<int64_t> result;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(result), [](int64_t size) { return size != 1; });
  return result;
}

// Samples in an array that holds `field`: [samples, ...] or [steps, batch, ...]; -1 if it does not fit. Dimensions of
// size 1 may be missing or more (labels [n] for [n, 1]).
int64_t samplesIn(const Array &array, const Field &field) {
  for (size_t leading = 1; leading <= 2 && leading <= array.shape.size(); ++leading) {
    std::span<const int64_t> rest = std::span(array.shape).subspan(leading);
    if (std::equal(rest.begin(), rest.end(), field.shape.begin(), field.shape.end()))
      return elementCount(std::span(array.shape).first(leading));
  }
  if (!array.shape.empty() && withoutOnes(std::span(array.shape).subspan(1)) == withoutOnes(field.shape))
    return array.shape[0];
  return -1;
}

// Whether an array is a whole field without samples, dimensions of size 1 apart.
bool isWhole(const Array &array, const Field &field) { return withoutOnes(array.shape) == withoutOnes(field.shape); }

// A field without samples may come as one row for each sample, when all rows are the same.
Status checkRowsAreOne(const Array &array, const Field &field, const std::string &what) {
  const size_t row = array.bytes.size() / static_cast<size_t>(std::max<int64_t>(1, array.shape[0]));
  for (int64_t i = 1; i < array.shape[0]; ++i)
    if (!std::equal(array.bytes.begin(), array.bytes.begin() + static_cast<int64_t>(row),
                    array.bytes.begin() + i * static_cast<int64_t>(row)))
      return inputError(fmt::format("{}: row {} differs from row 0, but the model's input '{}' is [{}] for all samples "
                                    "of a step; export it with a dimension of samples",
                                    what, i, field.name, fmt::join(field.shape, ", ")));
  return Status::ok();
}

// Sample i has the elements offsets[i] up to, without it, offsets[i + 1] of the others.
constexpr const char *offsetsName = "offsets";

Result<std::vector<SamplePart>> samplesAt(const std::map<std::string, Array> &file, const std::string &path) {
  auto found = file.find(offsetsName);
  if (found == file.end() || found->second.shape.size() != 1 || isFloat(found->second.dtype))
    return inputError(fmt::format("{}: samples of several lengths need an array '{}' of integers: sample i is elements "
                                  "offsets[i] up to offsets[i + 1] of the others",
                                  path, offsetsName));
  std::vector<int64_t> offsets(static_cast<size_t>(found->second.shape[0]));
  CLEAVE_RETURN_IF_ERROR(
      convertElements(found->second, 0, std::ssize(offsets), plan::I64, reinterpret_cast<std::byte *>(offsets.data())));
  std::vector<SamplePart> samples;
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] <= offsets[i - 1] || offsets[0] < 0)
      return inputError(fmt::format("{}: '{}' must rise, it has {} and then {} at {}", path, offsetsName,
                                    offsets[i - 1], offsets[i], i));
    samples.push_back({offsets[i - 1], offsets[i] - offsets[i - 1]});
  }
  return samples;
}

Result<DataSource> openRaggedArrays(const DataSettings &settings, const std::vector<Field> &fields,
                                    const std::map<std::string, Array> &file) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<SamplePart> samples, samplesAt(file, settings.path));
  const int64_t elements = samples.empty() ? 0 : samples.back().begin + samples.back().count;
  std::vector<RaggedSource> sources;
  for (const Field &field : fields) {
    CLEAVE_ASSIGN_OR_RETURN(FoundArray found, arrayFor(field, settings, file));
    const auto &[wanted, array, content] = found;
    RaggedSource &source = sources.emplace_back(RaggedSource{.content = content});
    if (!array) continue;
    source.array = *array;
    const int64_t rows = field.lengthDims.empty() ? std::ssize(samples) : elements;
    const int64_t inner =
        field.elements() / (field.lengthDims.empty() ? 1 : std::max<int64_t>(1, field.shape[field.lengthDims.front()]));
    if (elementCount(array->shape) / std::max<int64_t>(1, inner) < rows ||
        (!array->shape.empty() && array->shape[0] < rows))
      return inputError(fmt::format("{}: array '{}' is {}; {} of {} numbers are needed", settings.path, wanted,
                                    describe(*array), rows, inner));
  }
  return makeRagged(settings, fields, std::move(sources), std::move(samples));
}

} // namespace

Result<DataSource> openArrays(const DataSettings &settings, const std::vector<Field> &fields) {
  CLEAVE_ASSIGN_OR_RETURN(auto file, readArrays(settings.path));
  if (!settings.lengths.empty()) return openRaggedArrays(settings, fields, file);
  std::vector<RaggedSource> sources;
  std::vector<Content> contents;
  int64_t samples = -1;
  for (const Field &field : fields) {
    CLEAVE_ASSIGN_OR_RETURN(FoundArray found, arrayFor(field, settings, file));
    const auto &[wanted, array, content] = found;
    contents.push_back(content);
    RaggedSource &source = sources.emplace_back(RaggedSource{.content = content});
    if (!array) {
      CLEAVE_RETURN_IF_ERROR(checkFill(field, content, settings));
      continue;
    }
    source.array = *array;
    const bool once = field.withoutSamples && isWhole(*array, field);
    int64_t count = once ? samples : samplesIn(*array, field);
    if (count < 0 && !once) {
      // One dimension more, of numbers where class numbers are due.
      const bool isOneHot = !isFloat(field.dtype) && array->shape.size() == field.shape.size() + 2;
      return inputError(
          fmt::format("{}: array '{}' is {}; one sample of the plan's input is {} [{}], so [samples{}{}] is needed{}",
                      settings.path, wanted, describe(*array), name(field.dtype), fmt::join(field.shape, ", "),
                      field.shape.empty() ? "" : ", ", fmt::join(field.shape, ", "),
                      isOneHot ? "; of one-hot labels take .argmax(axis=-1)" : ""));
    }
    if (field.withoutSamples && !once)
      CLEAVE_RETURN_IF_ERROR(checkRowsAreOne(*array, field, fmt::format("{}: array '{}'", settings.path, wanted)));
    if (!once && samples >= 0 && count != samples)
      return inputError(
          fmt::format("{}: array '{}' holds {} samples, the ones before it {}", settings.path, wanted, count, samples));
    samples = once ? samples : count;
  }
  if (samples <= 0) return inputError(settings.path + ": holds no samples");
  DataSource source =
      splitSamples(std::make_shared<ArrayDataset>(fields, settings, std::move(sources), samples), settings.trainSplit);
  source.filled = filledText(fields, contents);
  return source;
}

} // namespace cleave::runtime
