#include "runtime/data/settings.h"
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

namespace cleave::runtime {

Result<DataSettings> parseDataSettings(const std::string &yaml) {
  DataSettings settings;
  std::string key;
  try {
    YAML::Node root = YAML::Load(yaml);
    if (!root.IsMap()) return inputError("the plan names no training data: give the recipe a `data` map");
    for (const auto &entry : root) {
      key = entry.first.as<std::string>();
      const YAML::Node &value = entry.second;
      if (key == "kind")
        settings.kind = value.as<std::string>();
      else if (key == "path")
        settings.path = value.as<std::string>();
      else if (key == "dtype")
        settings.dtype = value.as<std::string>();
      else if (key == "block")
        settings.block = value.as<int64_t>();
      else if (key == "truncate")
        settings.truncate = value.as<int64_t>();
      else if (key == "samples")
        settings.samples = value.as<int64_t>();
      else if (key == "train_split")
        settings.trainSplit = value.as<double>();
      else if (key == "shuffle")
        settings.shuffle = value.as<bool>();
      else if (key == "drop_last")
        settings.dropLast = value.as<bool>();
      else if (key == "size")
        settings.size = value.as<int64_t>();
      else if (key == "mean")
        settings.mean = value.as<std::vector<double>>();
      else if (key == "std")
        settings.std = value.as<std::vector<double>>();
      else if (key == "lengths")
        settings.lengths = value.as<std::vector<int64_t>>();
      else if (key == "length_dims")
        continue; // the compiler's
      else if (key == "pack")
        settings.pack = value.as<bool>();
      else if (key == "causal")
        settings.causal = value.as<bool>();
      else if (key == "separator")
        settings.separator = value.as<int64_t>();
      else if (key == "pad")
        settings.pad = value.as<std::map<std::string, double>>();
      else if (key == "fields")
        settings.fields = value.as<std::map<std::string, std::string>>();
      else
        return inputError(fmt::format("data: unknown key '{}'", key));
    }
  } catch (const YAML::Exception &error) {
    return inputError(fmt::format("data: '{}' cannot be read: {}", key, error.msg));
  }
  if (!(settings.trainSplit > 0 && settings.trainSplit <= 1))
    return inputError("data: train_split must be above 0 and at most 1");
  return settings;
}

} // namespace cleave::runtime
