// The `data` map of the plan (made by the compiler from a checked recipe, or given by an embedding program).
#pragma once
#include "runtime/status.h"
#include <cstdint>
#include <map>
#include <string>

namespace cleave::runtime {

struct DataSettings {
  std::string kind, path, dtype;
  int64_t block = 0, truncate = 0, samples = 0;
  double trainSplit = 1.0;
  bool shuffle = true, dropLast = false;
  std::map<std::string, std::string> fields;
};

// Error: not a map, an unknown key, a value of the wrong type.
Result<DataSettings> parseDataSettings(const std::string &yaml);

} // namespace cleave::runtime
