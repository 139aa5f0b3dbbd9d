#include "runtime/train/data/settings.h"
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <yaml-cpp/yaml.h>

namespace cleave::runtime {

namespace {

using Setter = std::function<void(DataSettings &, const YAML::Node &)>;
template <typename Value> Setter into(Value DataSettings::*member) {
  return [member](DataSettings &settings, const YAML::Node &value) { settings.*member = value.as<Value>(); };
}
template <typename Value> Setter into(std::optional<Value> DataSettings::*member) {
  return [member](DataSettings &settings, const YAML::Node &value) { settings.*member = value.as<Value>(); };
}

void readFill(DataSettings &settings, const YAML::Node &value) {
  for (const auto &[name, word] : value.as<std::map<std::string, std::string>>()) {
    const auto *known = std::ranges::find(contentWords, word, &std::pair<const char *, Content>::first);
    if (known == std::end(contentWords)) throw YAML::Exception(value.Mark(), fmt::format("'{}' is not known", word));
    settings.fill[name] = known->second;
  }
}

void readPaths(DataSettings &settings, const YAML::Node &value) {
  settings.paths = value.IsSequence() ? value.as<std::vector<std::string>>() : std::vector{value.as<std::string>()};
}

void readNumbers(const YAML::Node &map, std::initializer_list<std::pair<const char *, double *>> numbers) {
  for (auto [key, number] : numbers)
    if (map[key]) *number = map[key].as<double>();
}

void readAugment(DataSettings &settings, const YAML::Node &map) {
  Augment &augment = settings.augment.emplace();
  if (const YAML::Node crop = map["random_resized_crop"]) {
    augment.resizedCrop.emplace();
    if (crop["scale"]) augment.resizedCrop->scale = crop["scale"].as<std::vector<double>>();
    if (crop["ratio"]) augment.resizedCrop->ratio = crop["ratio"].as<std::vector<double>>();
    if (augment.resizedCrop->scale.size() != 2 || augment.resizedCrop->ratio.size() != 2)
      throw YAML::Exception(crop.Mark(), "a range is two numbers");
  }
  if (map["crop_padding"]) augment.cropPadding = map["crop_padding"].as<int64_t>();
  readNumbers(map, {{"flip", &augment.flip}});
  if (const YAML::Node jitter = map["color_jitter"])
    readNumbers(jitter, {{"brightness", &augment.brightness},
                         {"contrast", &augment.contrast},
                         {"saturation", &augment.saturation},
                         {"hue", &augment.hue}});
}

void readMap(DataSettings &settings, const YAML::Node &map, std::string &key);

void readSources(DataSettings &settings, const YAML::Node &value) {
  std::string key;
  for (const auto &entry : value) readMap(settings.sources.emplace_back(), entry, key);
}

const std::map<std::string, Setter> &setters() {
  static const std::map<std::string, Setter> all = {
      {"kind", into(&DataSettings::kind)},
      {"path", readPaths},
      {"dtype", into(&DataSettings::dtype)},
      {"block", into(&DataSettings::block)},
      {"truncate", into(&DataSettings::truncate)},
      {"samples", into(&DataSettings::samples)},
      {"train_split", into(&DataSettings::trainSplit)},
      {"shuffle", into(&DataSettings::shuffle)},
      {"last_batch", into(&DataSettings::lastBatch)},
      {"size", into(&DataSettings::size)},
      {"mean", into(&DataSettings::mean)},
      {"std", into(&DataSettings::std)},
      {"fields", into(&DataSettings::fields)},
      {"fill", readFill},
      {"lengths", into(&DataSettings::lengths)},
      {"length_dims", [](DataSettings &, const YAML::Node &) {}}, // the compiler's
      {"pack", into(&DataSettings::pack)},
      {"causal", into(&DataSettings::causal)},
      {"separator", into(&DataSettings::separator)},
      {"pad", into(&DataSettings::pad)},
      {"augment", readAugment},
      {"mixup", into(&DataSettings::mixup)},
      {"cutmix", into(&DataSettings::cutmix)},
      {"weight", into(&DataSettings::weight)},
      {"sources", readSources},
  };
  return all;
}

void readMap(DataSettings &settings, const YAML::Node &map, std::string &key) {
  if (!map.IsMap()) throw YAML::Exception(map.Mark(), "is no map");
  for (const auto &entry : map) {
    key = entry.first.as<std::string>();
    auto setter = setters().find(key);
    if (setter == setters().end()) throw YAML::Exception(map.Mark(), fmt::format("unknown key '{}'", key));
    setter->second(settings, entry.second);
  }
  if (!(settings.trainSplit > 0 && settings.trainSplit <= 1))
    throw YAML::Exception(map.Mark(), "train_split must be above 0 and at most 1");
}

} // namespace

std::vector<std::string> allPaths(const DataSettings &settings) {
  std::vector<std::string> paths = settings.paths;
  for (const DataSettings &source : settings.sources) std::ranges::copy(allPaths(source), std::back_inserter(paths));
  return paths;
}

Result<DataSettings> parseDataSettings(const std::string &yaml) {
  DataSettings settings;
  std::string key;
  try {
    YAML::Node root = YAML::Load(yaml);
    if (!root.IsMap()) return inputError("the plan names no training data: give the recipe a `data` map");
    readMap(settings, root, key);
  } catch (const YAML::Exception &error) {
    return inputError(fmt::format("data: '{}' cannot be read: {}", key, error.msg));
  }
  return settings;
}

} // namespace cleave::runtime
