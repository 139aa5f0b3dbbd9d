#include "runtime/plan/dtype.h"
#include "runtime/plan/float_convert.h"
#include "runtime/train/data/array.h"
#include "runtime/train/data/files.h"
#include "runtime/train/data/image_change.h"
#include "runtime/train/data/kinds.h"
#include "runtime/train/data/ragged.h"
#include "runtime/train/data/sequence.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::runtime {
namespace {

bool isImage(const Field &field) {
  return !field.label && !field.withoutSamples && field.shape.size() == 3 &&
         (field.shape[0] == 1 || field.shape[0] == 3) && (field.dtype == plan::F32 || field.dtype == plan::U8);
}

class ArrayDataset : public Dataset {
public:
  ArrayDataset(std::vector<Field> fields, const DataSettings &settings, std::vector<RaggedSource> sources,
               int64_t samples, uint64_t seed)
      : Dataset(std::move(fields), settings.shuffle), sources(std::move(sources)), samples(samples),
        augment(settings.augment), seed(seed) {}
  int64_t size() const override { return samples; }
  bool isSlow() const override { return augment.has_value(); }
  Status fillTraining(size_t number, std::span<const int64_t> indices, uint64_t turn, std::byte *out) const override {
    const Field &of = fieldList[number];
    if (!augment || !isImage(of)) return fill(number, indices, out);
    std::vector<uint8_t> planes(static_cast<size_t>(of.elements()));
    for (int64_t index : indices) {
      CLEAVE_RETURN_IF_ERROR(sources[number].array.convert(index * of.elements(), of.elements(), plan::U8,
                                                           reinterpret_cast<std::byte *>(planes.data())));
      const std::vector<uint8_t> changed = augmentedPlanes(planes.data(), of.shape[0], {of.shape[1], of.shape[2]},
                                                           *augment, Draws(seed, augmentStream, turn++));
      for (uint8_t value : changed) storeNumber(of.dtype, value, std::exchange(out, out + byteSize(of.dtype)));
    }
    return Status::ok();
  }
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    const Field &of = fieldList[field];
    for (int64_t index : indices) {
      if (of.withoutSamples) index = 0;
      const RaggedSource &from = sources[field];
      if (from.array.empty())
        make(of, from.content, out);
      else
        CLEAVE_RETURN_IF_ERROR(from.array.convert(index * of.elements(), of.elements(), of.dtype, out));
      const auto [path, element] = from.array.placeOf(index * of.elements());
      CLEAVE_RETURN_IF_ERROR(
          checkRange(of, {out, static_cast<size_t>(of.bytes())}, path, element / std::max<int64_t>(1, of.elements())));
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

  std::vector<RaggedSource> sources;
  int64_t samples;
  std::optional<Augment> augment;
  uint64_t seed;
};

// The arrays of one file.
struct ArrayFile {
  std::string path;
  std::map<std::string, Array> arrays;
};

Status noArray(const Field &field, const std::string &wanted, const ArrayFile &file) {
  std::vector<std::string> names;
  for (const auto &[name, array] : file.arrays) names.push_back(name);
  return inputError(fmt::format("{}: has no array '{}' for the {} of that name; it has: {}{}", file.path, wanted,
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
Result<FoundArray> arrayFor(const Field &field, const DataSettings &settings, const ArrayFile &file) {
  auto renamed = settings.fields.find(field.name);
  FoundArray result{renamed == settings.fields.end() ? field.name : renamed->second};
  auto found = file.arrays.find(result.name);
  if (found == file.arrays.end() || settings.fill.contains(field.name)) {
    result.content = contentOf(field, settings);
    if (std::ranges::count(std::array{Content::Given, Content::Tokens, Content::NextTokens}, result.content))
      return noArray(field, result.name, file);
    return result;
  }
  result.array = &found->second;
  // Whether the types convert shows on no elements at all.
  if (Status converts = convertElements(*result.array, 0, 0, field.dtype, nullptr); !converts)
    return inputError(fmt::format("{}: array '{}': {}", file.path, result.name, converts.message()));
  return result;
}

// What `augment` changes is bytes, and nothing else lies as its pixels do.
Status checkAugmented(const Field &field, const FoundArray &found, const ArrayFile &file) {
  if (!isImage(field) || (found.array && found.array->dtype == plan::U8)) return Status::ok();
  return inputError(fmt::format("{}: data.augment changes images of uint8, and array '{}' is {}", file.path, found.name,
                                found.array ? describe(*found.array) : "missing"));
}
Status checkAugmented(const std::vector<Field> &fields) {
  const auto image = std::ranges::find_if(fields, isImage);
  if (image == fields.end())
    return inputError("data.augment: no input of the plan is an image, f32 or u8 [3 or 1, height, width]");
  for (const Field &field : fields) {
    const std::vector<int64_t> &shape = field.shape;
    const bool isMap = shape.size() >= 2 && std::equal(image->shape.begin() + 1, image->shape.end(), shape.end() - 2);
    if (isImage(field) ? shape != image->shape : isMap)
      return inputError(fmt::format("data.augment: '{}' is {} [{}] and would not follow image '{}' of [{}]", field.name,
                                    name(field.dtype), fmt::join(shape, ", "), image->name,
                                    fmt::join(image->shape, ", ")));
  }
  return Status::ok();
}

// An input that one file has and another does not would be filled in some samples.
Status checkSource(const Field &field, const RaggedSource &source, const FoundArray &found, const ArrayFile &file,
                   bool isFirst) {
  if (isFirst || source.array.empty() == !found.array) return Status::ok();
  return inputError(fmt::format("{}: {} an array '{}', and the files before it {}", file.path,
                                found.array ? "has" : "has not", found.name,
                                found.array ? "have none for input '" + field.name + "'" : "have one"));
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

// The samples of one file, whose first element is number `first` of all.
Status addSamples(const ArrayFile &file, int64_t first, std::vector<SamplePart> &samples) {
  auto found = file.arrays.find(offsetsName);
  if (found == file.arrays.end() || found->second.shape.size() != 1 || isFloat(found->second.dtype))
    return inputError(fmt::format("{}: samples of several lengths need an array '{}' of integers: sample i is elements "
                                  "offsets[i] up to offsets[i + 1] of the others",
                                  file.path, offsetsName));
  std::vector<int64_t> offsets(static_cast<size_t>(found->second.shape[0]));
  CLEAVE_RETURN_IF_ERROR(
      convertElements(found->second, 0, std::ssize(offsets), plan::I64, reinterpret_cast<std::byte *>(offsets.data())));
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] <= offsets[i - 1] || offsets[0] < 0)
      return inputError(fmt::format("{}: '{}' must rise, it has {} and then {} at {}", file.path, offsetsName,
                                    offsets[i - 1], offsets[i], i));
    samples.push_back({first + offsets[i - 1], offsets[i] - offsets[i - 1]});
  }
  return Status::ok();
}

// So many elements of an array, from its beginning on.
Array leading(Array array, int64_t elements) {
  array.bytes = array.bytes.first(static_cast<size_t>(elements * byteSize(array.dtype)));
  return array;
}

Result<DataSource> openRaggedArrays(const DataSettings &settings, const std::vector<Field> &fields,
                                    const std::vector<ArrayFile> &files) {
  std::vector<SamplePart> samples;
  std::vector<RaggedSource> sources(fields.size());
  int64_t first = 0; // element of the file
  for (const ArrayFile &file : files) {
    const int64_t before = std::ssize(samples);
    CLEAVE_RETURN_IF_ERROR(addSamples(file, first, samples));
    const int64_t here = std::ssize(samples) - before;
    const int64_t elements = here == 0 ? 0 : samples.back().begin + samples.back().count - first;
    for (size_t i = 0; i < fields.size(); ++i) {
      const Field &field = fields[i];
      CLEAVE_ASSIGN_OR_RETURN(FoundArray found, arrayFor(field, settings, file));
      CLEAVE_RETURN_IF_ERROR(checkSource(field, sources[i], found, file, &file == files.data()));
      sources[i].content = found.content;
      if (!found.array) continue;
      const int64_t rows = field.lengthDims.empty() ? here : elements;
      const int64_t inner =
          field.elements() /
          (field.lengthDims.empty() ? 1 : std::max<int64_t>(1, field.shape[field.lengthDims.front()]));
      if (elementCount(found.array->shape) / std::max<int64_t>(1, inner) < rows ||
          (!found.array->shape.empty() && found.array->shape[0] < rows))
        return inputError(fmt::format("{}: array '{}' is {}; {} of {} numbers are needed", file.path, found.name,
                                      describe(*found.array), rows, inner));
      sources[i].array.add(leading(*found.array, rows * inner), file.path);
    }
    first += elements;
  }
  return makeRagged(settings, fields, std::move(sources), std::move(samples));
}

// Adds one file's array of a field. `samples`: of the file, as the arrays before it have; -1: none came yet.
Status addArray(const Field &field, const FoundArray &found, const ArrayFile &file, int64_t &samples,
                RaggedSource &source) {
  const Array &array = *found.array;
  const bool once = field.withoutSamples && isWhole(array, field);
  const int64_t count = once ? samples : samplesIn(array, field);
  if (count < 0 && !once) {
    // One dimension more, of numbers where class numbers are due.
    const bool isOneHot = !isFloat(field.dtype) && array.shape.size() == field.shape.size() + 2;
    return inputError(fmt::format(
        "{}: array '{}' is {}; one sample of the plan's input is {} [{}], so [samples{}{}] is needed{}", file.path,
        found.name, describe(array), name(field.dtype), fmt::join(field.shape, ", "), field.shape.empty() ? "" : ", ",
        fmt::join(field.shape, ", "), isOneHot ? "; of one-hot labels take .argmax(axis=-1)" : ""));
  }
  if (field.withoutSamples && !once)
    CLEAVE_RETURN_IF_ERROR(checkRowsAreOne(array, field, fmt::format("{}: array '{}'", file.path, found.name)));
  if (!once && samples >= 0 && count != samples)
    return inputError(
        fmt::format("{}: array '{}' holds {} samples, the ones before it {}", file.path, found.name, count, samples));
  samples = once ? samples : count;
  if (!field.withoutSamples || source.array.empty()) {
    source.array.add(array, file.path);
    return Status::ok();
  }
  // The same for all samples, so it is the same in all files.
  std::vector<std::byte> first(static_cast<size_t>(field.bytes())), here(first.size());
  CLEAVE_RETURN_IF_ERROR(source.array.convert(0, field.elements(), field.dtype, first.data()));
  CLEAVE_RETURN_IF_ERROR(convertElements(array, 0, field.elements(), field.dtype, here.data()));
  if (first == here) return Status::ok();
  return inputError(fmt::format("{}: array '{}' is not that of {}, and input '{}' is the same for all samples",
                                file.path, found.name, source.array.placeOf(0).path, field.name));
}

Result<std::vector<ArrayFile>> openArrayFiles(const DataSettings &settings) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> paths,
                          filesOf(settings.paths, {.endings = {".npz"}, .takesFolders = true}));
  std::vector<ArrayFile> files;
  for (std::string &path : paths) {
    CLEAVE_ASSIGN_OR_RETURN(auto arrays, readArrays(path));
    files.push_back({std::move(path), std::move(arrays)});
  }
  return files;
}

} // namespace

Result<DataSource> openArrays(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed) {
  if (settings.augment) CLEAVE_RETURN_IF_ERROR(checkAugmented(fields));
  CLEAVE_ASSIGN_OR_RETURN(std::vector<ArrayFile> files, openArrayFiles(settings));
  if (!settings.lengths.empty()) return openRaggedArrays(settings, fields, files);
  std::vector<RaggedSource> sources(fields.size());
  int64_t samples = 0;
  for (const ArrayFile &file : files) {
    int64_t here = -1;
    for (size_t i = 0; i < fields.size(); ++i) {
      CLEAVE_ASSIGN_OR_RETURN(FoundArray found, arrayFor(fields[i], settings, file));
      CLEAVE_RETURN_IF_ERROR(checkSource(fields[i], sources[i], found, file, &file == files.data()));
      sources[i].content = found.content;
      if (settings.augment) CLEAVE_RETURN_IF_ERROR(checkAugmented(fields[i], found, file));
      if (found.array)
        CLEAVE_RETURN_IF_ERROR(addArray(fields[i], found, file, here, sources[i]));
      else
        CLEAVE_RETURN_IF_ERROR(checkFill(fields[i], found.content, settings));
    }
    if (here <= 0) return inputError(file.path + ": holds no samples");
    samples += here;
  }
  std::vector<Content> contents;
  for (const RaggedSource &source : sources) contents.push_back(source.content);
  DataSource source = splitSamples(std::make_shared<ArrayDataset>(fields, settings, std::move(sources), samples, seed),
                                   settings.trainSplit);
  source.filled = filledText(fields, contents);
  return source;
}

} // namespace cleave::runtime
