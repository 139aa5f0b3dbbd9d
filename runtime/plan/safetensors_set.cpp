#include "runtime/plan/safetensors_set.h"
#include "runtime/base/folder.h"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

constexpr const char *indexName = "model.safetensors.index.json", *fileName = "model.safetensors";

// The file or index of a folder.
Result<std::string> inFolder(const std::string &folder) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<fs::path> entries, entriesOf(folder));
  std::vector<std::string> found;
  for (const char *name : {indexName, fileName})
    if (fs::path path = fs::path(folder) / name; std::ranges::count(entries, path) > 0) return path.string();
  for (const fs::path &entry : entries)
    if (entry.extension() == ".safetensors") found.push_back(entry.string());
  if (found.size() == 1) return found.front();
  return inputError(
      found.empty()
          ? fmt::format("{}: has neither {}, nor {}, nor another .safetensors file", folder, indexName, fileName)
          : fmt::format("{}: has {} .safetensors files and no {} that says which to read; name one file", folder,
                        found.size(), indexName));
}

} // namespace

Result<SafetensorsSet> SafetensorsSet::open(const std::string &path) {
  SafetensorsSet set;
  std::string place = path;
  CLEAVE_ASSIGN_OR_RETURN(fs::file_type type, fileTypeOf(path));
  if (type == fs::file_type::directory) {
    CLEAVE_ASSIGN_OR_RETURN(place, inFolder(path));
  }
  if (place.ends_with(".json")) {
    CLEAVE_RETURN_IF_ERROR(set.addIndex(place));
  } else if (place.ends_with(".safetensors")) {
    CLEAVE_RETURN_IF_ERROR(set.add(place));
  } else {
    return inputError(path + ": is no .safetensors file, .safetensors.index.json, nor a folder of them; "
                             "safetensors.torch.save_file(model.state_dict(), ...) writes one");
  }
  set.findFolder();
  return set;
}

Status SafetensorsSet::add(const std::string &path) {
  CLEAVE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> opened, SafetensorsFile::open(path));
  for (const auto &[name, view] : opened->tensors()) byName.try_emplace(name, Tensor{&view, files.size()});
  files.push_back(std::move(opened));
  std::error_code failure;
  places.push_back(fs::weakly_canonical(fs::absolute(path), failure).string());
  return Status::ok();
}

Status SafetensorsSet::addIndex(const std::string &path) {
  Result<std::shared_ptr<MappedFile>> file = MappedFile::open(path);
  if (!file) return file.status();
  const auto index = nlohmann::json::parse((*file)->bytes(), nullptr, false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    return inputError(path + ": is not an index of safetensors files");
  std::set<std::string> names;
  for (const auto &[key, file] : index["weight_map"].items()) {
    if (!file.is_string()) return inputError(fmt::format("{}: names no file for tensor '{}'", path, key));
    names.insert(file.get<std::string>());
  }
  for (const std::string &name : names) CLEAVE_RETURN_IF_ERROR(add((fs::path(path).parent_path() / name).string()));
  for (const auto &[key, file] : index["weight_map"].items())
    if (!byName.contains(key))
      return inputError(
          fmt::format("{}: says that tensor '{}' is in {}, and it is not", path, key, file.get<std::string>()));
  return Status::ok();
}

// The longest path that is above all files.
void SafetensorsSet::findFolder() {
  fs::path common = places.empty() ? fs::path() : fs::path(places.front()).parent_path();
  for (const std::string &place : places) {
    const fs::path own(place);
    fs::path shared;
    for (auto [a, b] = std::pair(common.begin(), own.begin()); a != common.end() && b != own.end() && *a == *b;
         ++a, ++b)
      shared /= *a;
    common = shared;
  }
  root = common.string();
}

const SafetensorsSet::Tensor *SafetensorsSet::find(const std::string &name) const {
  auto found = byName.find(name);
  return found == byName.end() ? nullptr : &found->second;
}

std::string SafetensorsSet::pathOf(const Tensor &tensor) const {
  return fs::path(places[tensor.file]).lexically_relative(root).string();
}

} // namespace cleave::runtime
