#include "runtime/base/folder.h"
#include "runtime/plan/dtype.h"
#include "runtime/train/data/array.h"
#include "runtime/train/data/image_change.h"
#include "runtime/train/data/kinds.h"
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

constexpr int64_t pixels = 3 * 32 * 32, recordBytes = 1 + pixels, classes = 10;

bool isCifarImage(const Field &field) { return field.shape == std::vector<int64_t>{3, 32, 32}; }
bool isOneHot(const Field &field) { return field.shape == std::vector<int64_t>{classes} && field.dtype == plan::F32; }

class CifarDataset : public Dataset {
public:
  CifarDataset(std::vector<Field> fields, const DataSettings &settings, uint64_t seed,
               std::vector<std::shared_ptr<MappedFile>> files)
      : Dataset(std::move(fields), settings.shuffle), files(std::move(files)), augment(settings.augment), seed(seed) {
    for (const auto &file : this->files) samples += static_cast<int64_t>(file->bytes().size()) / recordBytes;
  }
  int64_t size() const override { return samples; }
  Status fill(size_t field, std::span<const int64_t> indices, std::byte *out) const override {
    return fillWith(field, indices, nullptr, out);
  }
  Status fillTraining(size_t field, std::span<const int64_t> indices, uint64_t turn, std::byte *out) const override {
    return fillWith(field, indices, augment ? &turn : nullptr, out);
  }
  bool isSlow() const override { return augment.has_value(); }

private:
  // `turn`: the first sample's, where images are changed at random.
  Status fillWith(size_t field, std::span<const int64_t> indices, const uint64_t *turn, std::byte *out) const {
    const Field &of = fieldList[field];
    for (size_t i = 0; i < indices.size(); ++i, out += of.bytes()) {
      const unsigned char *at = record(indices[i]);
      if (at[0] >= classes) return inputError(fmt::format("CIFAR-10 sample {} has the label {}", indices[i], at[0]));
      if (!isCifarImage(of))
        writeLabel(at[0], of, out);
      else if (!turn)
        writeImage(at + 1, of.dtype, out);
      else
        writeImage(augmentedPlanes(at + 1, 3, {32, 32}, *augment, Draws(seed, augmentStream, *turn + i)).data(),
                   of.dtype, out);
      CLEAVE_RETURN_IF_ERROR(checkRange(of, {out, static_cast<size_t>(of.bytes())}, "CIFAR-10", indices[i]));
    }
    return Status::ok();
  }
  const unsigned char *record(int64_t index) const {
    for (const auto &file : files) {
      int64_t here = static_cast<int64_t>(file->bytes().size()) / recordBytes;
      if (index < here) return reinterpret_cast<const unsigned char *>(file->bytes().data()) + index * recordBytes;
      index -= here;
    }
    return nullptr; // the sampler stays below size()
  }
  static void writeImage(const unsigned char *from, plan::DType dtype, std::byte *out) {
    if (dtype == plan::U8) {
      std::memcpy(out, from, pixels);
      return;
    }
    for (int64_t i = 0; i < pixels; ++i) {
      float value = static_cast<float>(from[i]) / 255.0f;
      std::memcpy(out + 4 * i, &value, 4);
    }
  }
  static void writeLabel(unsigned char label, const Field &field, std::byte *out) {
    if (isOneHot(field)) {
      for (int64_t i = 0; i < classes; ++i) {
        float value = i == label;
        std::memcpy(out + 4 * i, &value, 4);
      }
      return;
    }
    int64_t value = label;
    std::memcpy(out, &value, static_cast<size_t>(byteSize(field.dtype)));
  }

  std::vector<std::shared_ptr<MappedFile>> files;
  std::optional<Augment> augment;
  uint64_t seed;
  int64_t samples = 0;
};

Status checkField(const Field &field) {
  bool image = isCifarImage(field) && (field.dtype == plan::F32 || field.dtype == plan::U8);
  bool label = (field.elements() == 1 && (field.dtype == plan::I64 || field.dtype == plan::I32)) || isOneHot(field);
  if (field.label ? label : image) return Status::ok();
  return inputError(fmt::format(
      "data of kind 'cifar10' fills images f32 [3, 32, 32] and labels i64 or one-hot f32 [10]; '{}' is {} [{}]",
      field.name, name(field.dtype), fmt::join(field.shape, ", ")));
}

Result<std::shared_ptr<MappedFile>> openRecords(const std::string &path) {
  Result<std::shared_ptr<MappedFile>> file = MappedFile::open(path);
  if (file && ((*file)->bytes().empty() || (*file)->bytes().size() % recordBytes != 0))
    return inputError(fmt::format("{}: is not a CIFAR-10 binary file: {} bytes are no multiple of {}", path,
                                  (*file)->bytes().size(), recordBytes));
  return file;
}

} // namespace

Result<DataSource> openCifar10(const DataSettings &settings, const std::vector<Field> &fields, uint64_t seed) {
  for (const Field &field : fields) CLEAVE_RETURN_IF_ERROR(checkField(field));
  std::vector<std::string> paths;
  CLEAVE_ASSIGN_OR_RETURN(fs::file_type type, fileTypeOf(settings.paths.front()));
  const bool folder = type == fs::file_type::directory;
  bool hasTest = false;
  if (folder) {
    CLEAVE_ASSIGN_OR_RETURN(std::vector<fs::path> entries, entriesOf(settings.paths.front()));
    for (const fs::path &entry : entries) {
      const std::string name = entry.filename().string();
      if (name.starts_with("data_batch_") && name.ends_with(".bin")) paths.push_back(entry.string());
      hasTest |= name == "test_batch.bin";
    }
    std::sort(paths.begin(), paths.end());
    if (paths.empty())
      return inputError(settings.paths.front() + ": holds no data_batch_*.bin (CIFAR-10's binary version)");
  } else {
    paths.push_back(settings.paths.front());
  }
  std::vector<std::shared_ptr<MappedFile>> files;
  for (const std::string &path : paths) {
    CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, openRecords(path));
    files.push_back(file);
  }
  DataSource source;
  source.train = std::make_unique<CifarDataset>(fields, settings, seed, std::move(files));
  std::string test = (fs::path(settings.paths.front()) / "test_batch.bin").string();
  if (hasTest) {
    CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, openRecords(test));
    source.evaluation = std::make_unique<CifarDataset>(fields, settings, seed, std::vector{file});
  }
  return source;
}

} // namespace cleave::runtime
