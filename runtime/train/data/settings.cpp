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

const std::map<std::string, Setter> &setters() {
  static const std::map<std::string, Setter> all = {
      {"kind", into(&DataSettings::kind)},
      {"path", into(&DataSettings::path)},
      {"dtype", into(&DataSettings::dtype)},
      {"block", into(&DataSettings::block)},
      {"truncate", into(&DataSettings::truncate)},
      {"samples", into(&DataSettings::samples)},
      {"train_split", into(&DataSettings::trainSplit)},
      {"shuffle", into(&DataSettings::shuffle)},
      {"drop_last", into(&DataSettings::dropLast)},
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
  };
  return all;
}

} // namespace

Result<DataSettings> parseDataSettings(const std::string &yaml) {
  DataSettings settings;
  std::string key;
  try {
    YAML::Node root = YAML::Load(yaml);
    if (!root.IsMap()) return inputError("the plan names no training data: give the recipe a `data` map");
    for (const auto &entry : root) {
      key = entry.first.as<std::string>();
      auto setter = setters().find(key);
      if (setter == setters().end()) return inputError(fmt::format("data: unknown key '{}'", key));
      setter->second(settings, entry.second);
    }
  } catch (const YAML::Exception &error) {
    return inputError(fmt::format("data: '{}' cannot be read: {}", key, error.msg));
  }
  if (!(settings.trainSplit > 0 && settings.trainSplit <= 1))
    return inputError("data: train_split must be above 0 and at most 1");
  return settings;
}

} // namespace cleave::runtime
