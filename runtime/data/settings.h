// The `data` map of the plan (made by the compiler from a checked recipe, or given by an embedding program).
#pragma once
#include "runtime/status.h"
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cleave::runtime {

struct DataSettings {
  std::string kind, path, dtype;
  int64_t block = 0, truncate = 0, samples = 0;
  double trainSplit = 1.0;
  bool shuffle = true, dropLast = false;
  std::map<std::string, std::string> fields;
  int64_t size = 0;              // images
  std::vector<double> mean, std; // images: of one channel or of each
};

// Error: not a map, an unknown key, a value of the wrong type.
Result<DataSettings> parseDataSettings(const std::string &yaml);

} // namespace cleave::runtime
