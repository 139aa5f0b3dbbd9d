#include "runtime/base/folder.h"
#include "runtime/base/mapped_file.h"
#include "runtime/plan/dtype.h"
#include "runtime/train/data/image_change.h"
#include "runtime/train/data/kinds.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

// Files whose headers are read before training starts; in a larger folder a broken one shows when it is its turn.
constexpr size_t checkedFiles = 20000;

struct Sample {
  std::string path;
  int64_t label = 0;
};

struct Folder {
  std::vector<std::string> classes;
  std::vector<Sample> samples; // by class
};

bool isImage(const Field &field) {
  return field.shape.size() == 3 && (field.shape[0] == 1 || field.shape[0] == 3) && field.elements() > 0 &&
         (field.dtype == plan::F32 || field.dtype == plan::U8);
}

// How an image comes to the model's size.
struct Fit {
  ImageSize model;
  int64_t shorter = 0; // what the shorter side becomes first; 0: so that the model's size is just covered

  ImageSize scaled(ImageSize from) const {
    if (shorter > 0)
      return from.height <= from.width ? ImageSize{shorter, shorter * from.width / from.height}
                                       : ImageSize{shorter * from.height / from.width, shorter};
    if (from.height * model.width <= from.width * model.height)
      return {model.height, std::max(model.width, model.height * from.width / from.height)};
    return {std::max(model.height, model.width * from.height / from.width), model.width};
  }
  // A strip whose shorter side is scaled up becomes very long.
  Status check(ImageSize from, const std::string &path) const {
    constexpr int64_t pixelLimit = int64_t(1) << 28;
    const ImageSize to = scaled(from);
    if (to.height <= pixelLimit / std::max<int64_t>(1, to.width)) return Status::ok();
    return inputError(fmt::format("{}: an image of {} x {} pixels would be scaled to {} x {}", path, from.height,
                                  from.width, to.height, to.width));
  }
};

class ImageDataset : public Dataset {
public:
  ImageDataset(std::vector<Field> fields, const DataSettings &settings, std::vector<Sample> samples, int64_t classes,
               uint64_t seed)
      : Dataset(std::move(fields), settings.shuffle), samples(std::move(samples)), classes(classes), seed(seed),
        size_(settings.size), mean(settings.mean), deviation(settings.std), augment(settings.augment) {}
  int64_t size() const override { return static_cast<int64_t>(samples.size()); }
  bool isSlow() const override { return true; } // to decode
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    return fillWith(field, indices, nullptr, out);
  }
  Status fillTraining(size_t field, std::span<const int64_t> indices, uint64_t turn, std::byte *out) const override {
    return fillWith(field, indices, augment ? &turn : nullptr, out);
  }

private:
  // `turn`: the first sample's, where images are changed at random.
  Status fillWith(size_t field, std::span<const int64_t> indices, const uint64_t *turn, std::byte *out) const {
    const Field &of = fieldList[field];
    for (size_t i = 0; i < indices.size(); ++i, out += of.bytes()) {
      const Sample &sample = samples[static_cast<size_t>(indices[i])];
      if (!isImage(of)) {
        writeLabel(sample.label, of, out);
        continue;
      }
      std::optional<Draws> draws;
      if (turn) draws.emplace(seed, augmentStream, *turn + i);
      CLEAVE_RETURN_IF_ERROR(writeImage(sample.path, of, draws, out));
    }
    return Status::ok();
  }
  Status writeImage(const std::string &path, const Field &field, const std::optional<Draws> &draws,
                    std::byte *out) const {
    CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(path));
    CLEAVE_ASSIGN_OR_RETURN(Image decoded, decodeImage(file->bytes(), path));
    const Fit fit{{field.shape[1], field.shape[2]}, size_};
    CLEAVE_RETURN_IF_ERROR(fit.check(decoded.size, path));
    auto fitted = [&](const Image &whole) { return cropCentre(resize(whole, fit.scaled(whole.size)), fit.model); };
    const Image image = draws ? augmented(decoded, *augment, fit.model, *draws, fitted) : fitted(decoded);
    int64_t pixels = fit.model.height * fit.model.width;
    for (int64_t channel = 0; channel < field.shape[0]; ++channel)
      for (int64_t i = 0; i < pixels; ++i) {
        const uint8_t *at = image.pixels.data() + 3 * i;
        uint8_t value = field.shape[0] == 1 ? grey(at) : at[channel];
        int64_t index = channel * pixels + i;
        if (field.dtype == plan::U8) {
          std::memcpy(out + index, &value, 1);
          continue;
        }
        float number = static_cast<float>(value) / 255.0F;
        if (!mean.empty()) number -= static_cast<float>(of(mean, channel));
        if (!deviation.empty()) number /= static_cast<float>(of(deviation, channel));
        std::memcpy(out + 4 * index, &number, 4);
      }
    return Status::ok();
  }
  static double of(const std::vector<double> &values, int64_t channel) {
    return values.size() == 1 ? values[0] : values[static_cast<size_t>(channel)];
  }
  void writeLabel(int64_t label, const Field &field, std::byte *out) const {
    if (field.dtype != plan::F32) {
      std::memcpy(out, &label, static_cast<size_t>(byteSize(field.dtype)));
      return;
    }
    for (int64_t i = 0; i < classes; ++i) {
      float value = i == label;
      std::memcpy(out + 4 * i, &value, 4);
    }
  }

  std::vector<Sample> samples;
  int64_t classes;
  uint64_t seed;
  int64_t size_;
  std::vector<double> mean, deviation;
  std::optional<Augment> augment;
};

Status checkField(const Field &field, const DataSettings &settings, int64_t classes) {
  std::string what = fmt::format("'{}' is {} [{}]", field.name, name(field.dtype), fmt::join(field.shape, ", "));
  if (field.label) {
    bool number = field.elements() == 1 && (field.dtype == plan::I64 || field.dtype == plan::I32);
    bool oneHot = field.dtype == plan::F32 && field.shape == std::vector<int64_t>{classes};
    if (!number && !oneHot)
      return inputError(fmt::format("data of kind 'images' has labels i64 or one-hot f32 [{}]; {}", classes, what));
    if (number && field.upperBound > 0 && classes > field.upperBound)
      return inputError(
          fmt::format("{}: holds {} classes, the model has {}", settings.paths.front(), classes, field.upperBound));
    return Status::ok();
  }
  if (!isImage(field))
    return inputError(fmt::format("data of kind 'images' fills images f32 or u8 [3 or 1, height, width]; {}", what));
  auto channels = static_cast<size_t>(field.shape[0]);
  for (auto [key, values] : {std::pair("mean", &settings.mean), std::pair("std", &settings.std)}) {
    if (values->empty()) continue;
    if (field.dtype == plan::U8) return inputError(fmt::format("data.{}: is for images of floats; {}", key, what));
    if (values->size() != 1 && values->size() != channels)
      return inputError(
          fmt::format("data.{}: has {} numbers for images of {} channels", key, values->size(), channels));
  }
  if (settings.size > 0 && settings.size < std::max(field.shape[1], field.shape[2]))
    return inputError(fmt::format("data.size: {} is less than the model's images; {}", settings.size, what));
  return Status::ok();
}

std::string lowered(std::string text) {
  for (char &letter : text)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return text;
}

// The images anywhere below one class's folder, in the order of torchvision's ImageFolder: by folder, then by name.
Status listClass(const fs::path &folder, int64_t label, std::vector<Sample> &samples) {
  std::vector<std::pair<std::string, std::string>> found;
  std::error_code failure;
  using Walk = fs::recursive_directory_iterator;
  for (Walk at(folder, fs::directory_options::follow_directory_symlink, failure); !failure && at != Walk();
       at.increment(failure)) {
    std::string path = at->path().string(), end = lowered(at->path().extension().string());
    if (at->is_directory(failure)) continue;
    if (end == ".png" || end == ".jpg" || end == ".jpeg")
      found.emplace_back(at->path().parent_path().string(), at->path().filename().string());
    // ImageFolder takes these, too.
    for (const char *other : {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})
      if (end == other) return inputError(path + ": is neither a PNG nor a JPEG; convert it");
  }
  if (failure) return inputError(fmt::format("{}: cannot be read: {}", folder.string(), failure.message()));
  if (found.empty()) return inputError(folder.string() + ": holds no image (.png, .jpg, .jpeg) of its class");
  std::sort(found.begin(), found.end());
  for (const auto &[parent, file] : found) samples.push_back({(fs::path(parent) / file).string(), label});
  return Status::ok();
}

Result<Folder> listFolder(const std::string &path) {
  Folder folder;
  const Result<fs::file_type> kind = fileTypeOf(path);
  if (kind && *kind == fs::file_type::not_found)
    return inputError(path + ": cannot be read: No such file or directory");
  CLEAVE_ASSIGN_OR_RETURN(std::vector<fs::path> entries, entriesOf(path));
  for (const fs::path &entry : entries) {
    CLEAVE_ASSIGN_OR_RETURN(fs::file_type type, fileTypeOf(entry));
    if (type == fs::file_type::directory) folder.classes.push_back(entry.filename().string());
  }
  if (folder.classes.empty()) return inputError(path + ": holds no folder; images lie in one for each class");
  std::sort(folder.classes.begin(), folder.classes.end());
  for (size_t i = 0; i < folder.classes.size(); ++i)
    CLEAVE_RETURN_IF_ERROR(listClass(fs::path(path) / folder.classes[i], static_cast<int64_t>(i), folder.samples));
  return folder;
}

Status checkHeaders(const std::vector<Sample> &samples, const std::vector<Fit> &fits) {
  for (size_t i = 0; i < std::min(samples.size(), checkedFiles); ++i) {
    CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(samples[i].path));
    CLEAVE_ASSIGN_OR_RETURN(ImageSize size, imageSize(file->bytes(), samples[i].path));
    for (const Fit &fit : fits) CLEAVE_RETURN_IF_ERROR(fit.check(size, samples[i].path));
  }
  return Status::ok();
}

} // namespace

Result<DataSource> openImages(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed) {
  CLEAVE_ASSIGN_OR_RETURN(Folder folder, listFolder(settings.paths.front()));
  auto classes = static_cast<int64_t>(folder.classes.size());
  for (const Field &field : fields) CLEAVE_RETURN_IF_ERROR(checkField(field, settings, classes));
  std::vector<Fit> fits;
  for (const Field &field : fields)
    if (isImage(field)) fits.push_back({{field.shape[1], field.shape[2]}, settings.size});
  CLEAVE_RETURN_IF_ERROR(checkHeaders(folder.samples, fits));
  // The leading part of each class trains, one image at least.
  std::vector<Sample> train, rest;
  for (size_t begin = 0; begin < folder.samples.size();) {
    size_t end = begin;
    while (end < folder.samples.size() && folder.samples[end].label == folder.samples[begin].label) ++end;
    auto part =
        std::max<size_t>(1, static_cast<size_t>(std::llround(settings.trainSplit * static_cast<double>(end - begin))));
    for (size_t i = begin; i < end; ++i) (i < begin + part ? train : rest).push_back(folder.samples[i]);
    begin = end;
  }
  DataSource source;
  source.train = std::make_unique<ImageDataset>(fields, settings, std::move(train), classes, seed);
  if (!rest.empty())
    source.evaluation = std::make_unique<ImageDataset>(fields, settings, std::move(rest), classes, seed);
  return source;
}

} // namespace cleave::runtime
